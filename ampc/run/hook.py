"""Answers imports of ``torch`` with ampc: the module, its submodules, and code that asks whether torch is installed."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any, Iterable, List, Optional

from .._names.place import take_torchs_place
from ..torch_version import TorchVersion
from .names import missing_text

VERSION = TorchVersion("2.13.0")  # of the torch whose interface this is


class _Torch(ModuleType):
    """The module ``torch``: every name is ampc's, except the version. A name is kept here once it was asked for, since scripts ask in every
    step; those that ampc makes anew each time are not."""

    def __getattr__(self, name: str) -> Any:
        import ampc

        found = getattr(ampc, name, self)
        if found is self:
            raise AttributeError(missing_text(f"torch.{name}"))
        if isinstance(found, ModuleType) and found.__name__ == f"ampc.{name}":
            return importlib.import_module(f"torch.{name}")
        if name in vars(ampc):
            self.__dict__[name] = found
        return found

    def __dir__(self) -> List[str]:
        import ampc

        return dir(ampc)


class _Loader(importlib.abc.Loader):
    """Makes ``torch``, and ``torch.x`` the very module ``ampc.x``."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        if spec.name == "torch":
            import ampc

            take_torchs_place()
            module = _Torch("torch", ampc.__doc__)
            module.__version__ = VERSION  # type: ignore[attr-defined]
            module.__file__ = ampc.__file__
            return module
        found = importlib.import_module("ampc" + spec.name[len("torch"):])
        self.kept = found.__spec__, found.__loader__, found.__name__, found.__package__
        return found

    def exec_module(self, module: ModuleType) -> None:
        """The import system has written torch's names into ampc's module: they become ampc's again."""
        if isinstance(module, _Torch):
            module.__path__ = []  # a package, whose parts this finder finds
            return
        module.__spec__, module.__loader__, module.__name__, module.__package__ = self.kept
        for name in [n for n in sys.modules if n.startswith(module.__name__ + ".")]:
            # Found here, they are not written into their package, where a function may have the name (nn.utils.weight_norm).
            sys.modules.setdefault("torch" + name[len("ampc"):], sys.modules[name])


class _Distribution(importlib.metadata.Distribution):
    """What importlib.metadata says about torch."""

    def read_text(self, filename: str) -> Optional[str]:
        if filename != "METADATA":
            return None
        return f"Metadata-Version: 2.1\nName: torch\nVersion: {VERSION}\nSummary: ampc, in torch's place\n"

    def locate_file(self, path: Any) -> Any:
        import ampc

        return importlib.import_module("pathlib").Path(ampc.__file__).parent / path


class Finder(importlib.abc.MetaPathFinder):
    """Finds ``torch`` and what of it ampc has."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname != "torch" and not fullname.startswith("torch."):
            return None
        ours = "ampc" + fullname[len("torch"):]
        if fullname != "torch" and not _has_module(ours):
            return None
        return importlib.machinery.ModuleSpec(fullname, _Loader(), origin="ampc", is_package=True)

    def find_distributions(self, context: Any = None) -> Iterable[importlib.metadata.Distribution]:
        if context is None or context.name is None or context.name.lower() == "torch":
            yield _Distribution()


def _has_module(name: str) -> bool:
    """Whether ampc has a module of this name; some have no file."""
    if name in sys.modules:
        return True
    try:
        importlib.import_module(name.rpartition(".")[0])
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, AttributeError, ValueError):
        return False


def _install_in_children() -> None:
    """Processes that this one starts with its environment, by ``subprocess`` or ``multiprocessing``, need ampc in torch's place, too. If they are
    Python, they import the sitecustomize of the folder that this puts first on PYTHONPATH."""
    folder, there = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_children"), os.environ.get("PYTHONPATH")
    if folder not in (there or "").split(os.pathsep):
        os.environ["PYTHONPATH"] = folder + (os.pathsep + there if there else "")


def install() -> None:
    """From now on ``import torch`` gives ampc in this process and in those that it starts. RuntimeError if torch itself was imported before."""
    there = sys.modules.get("torch")
    if there is not None and not isinstance(there, _Torch):
        raise RuntimeError("ampc run: torch itself is imported already in this process; start a fresh one")
    if not any(isinstance(f, Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, Finder())
        _install_in_children()
