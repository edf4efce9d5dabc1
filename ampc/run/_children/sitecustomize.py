"""Python imports this when it starts, in a process that a script under ``ampc run`` started: ``import torch`` will give ampc there, too.

Nothing of ampc is loaded before somebody asks for torch. A ``sitecustomize`` that comes later in ``sys.path`` runs as it would without this one."""

import os
import sys
from importlib.machinery import PathFinder
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))  # the folder that ampc lies in


class Late:
    """Stands in ``sys.meta_path`` for the finder of ``ampc.run.hook``, until torch is asked for."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> Any:
        """ampc is that of the process that started this one. torch is what the hook finds; where ampc cannot be loaded, as in another
        version of Python, whatever else there is."""
        if fullname == "ampc":
            return PathFinder.find_spec(fullname, [PACKAGES])
        return cls._hook().find_spec(fullname, path, target) if fullname.partition(".")[0] == "torch" and cls._hook() else None

    @classmethod
    def find_distributions(cls, context: Any = None) -> Any:
        """torch's, by the hook."""
        name = getattr(context, "name", None)
        return cls._hook().find_distributions(context) if (name is None or name.lower() == "torch") and cls._hook() else ()

    @classmethod
    def _hook(cls) -> Any:
        try:
            from ampc.run import hook
        except ImportError:
            return None
        hook.install()
        return hook.Finder()


def run_the_next() -> None:
    """The sitecustomize that this one hides."""
    sys.path[:] = [p for p in sys.path if os.path.abspath(p) != HERE]
    this = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if this is not None:
            sys.modules["sitecustomize"] = this


sys.meta_path.insert(0, Late)
run_the_next()
