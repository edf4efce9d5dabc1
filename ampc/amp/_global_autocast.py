"""``ampc.enable_autocast``, an attribute of the package that turns autocast on and off. Source of the name: the Genesis framework's guide."""

from __future__ import annotations

from types import ModuleType

from .. import _C


class Switched(ModuleType):
    """The package's own class."""

    @property
    def enable_autocast(self) -> bool:
        """Whether operators of this thread are cast. Written, it turns autocast on or off without a region: in float16 on a GPU, in bfloat16
        on the CPU, or as ``set_autocast_dtype`` said. Regions within go by their own."""
        return bool(_C._autocast_active())

    @enable_autocast.setter
    def enable_autocast(self, on: bool) -> None:
        if not isinstance(on, bool):
            raise TypeError(f"enable_autocast must be True or False, got {on!r}")
        for kind in ["cpu", *(["cuda"] if _C._cuda_count() or not on else [])]:
            _C.set_autocast_enabled(kind, on)
