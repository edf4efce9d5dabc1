"""What the suite is run on, beside ``ampc._tensor.array_api``: ampc itself."""

from types import ModuleType

import ampc


class Top(ModuleType):
    """ampc with `eq` for `equal`. torch's `equal` is one truth value, and the suite compares arrays with `equal` in tests of all else."""

    equal = staticmethod(ampc.eq)

    def __getattr__(self, name):
        return getattr(ampc, name)


top = Top("ampc")
