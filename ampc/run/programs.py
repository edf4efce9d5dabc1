"""What ``ampc run`` can run, found by its name: a file, a folder with ``__main__.py``, a module, and a program that a package has installed."""

from __future__ import annotations

import builtins
import importlib.metadata
import importlib.util
import os
import shutil
import sys
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any, NamedTuple, Optional, Union


class NotFound(Exception):
    """There is nothing to run. ``status`` is the exit status that Python has for this."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Program(NamedTuple):
    """What is to run as ``__main__``."""

    path: str  # the file, which is sys.argv[0]
    code: Union[bytes, str, CodeType]
    spec: Optional[ModuleSpec] = None  # of a module

    def module(self) -> ModuleType:
        """``__main__``, before its code has run."""
        main = ModuleType("__main__")
        main.__dict__.update(__file__=self.path, __builtins__=builtins, __spec__=self.spec, __cached__=None)
        if self.spec is not None:
            main.__dict__.update(__package__=self.spec.parent, __loader__=self.spec.loader)
        return main

    def compiled(self) -> CodeType:
        """The code. It does not inherit this file's __future__ flags."""
        return self.code if isinstance(self.code, CodeType) else compile(self.code, self.path, "exec", dont_inherit=True)


def of_name(name: str) -> Program:
    """What a command line names: a file or folder before a program that is installed."""
    if os.path.exists(name) and not (os.path.isdir(name) and _main_of(name) is None) or os.path.dirname(name) or name.endswith(".py"):
        return of_file(name)
    return _installed(name)


def of_file(path: str) -> Program:
    """A script, or a folder with a ``__main__.py``, as Python itself runs them. NotFound where it cannot be read."""
    inside = _main_of(path)
    try:
        with open(inside or path, "rb") as f:
            source = f.read()
    except OSError as error:
        raise NotFound(f"{path}: {error.strerror}", 2) from None
    sys.path.insert(0, os.path.abspath(path) if inside else os.path.dirname(os.path.abspath(path)))
    return Program(inside or path, source)


def _main_of(path: str) -> Optional[str]:
    inside = os.path.join(path, "__main__.py")
    return inside if os.path.isfile(inside) else None


def of_module(name: str) -> Program:
    """A module, or a package's ``__main__``, as by ``python -m``. Imports the packages around it. NotFound where there is none."""
    sys.path.insert(0, os.getcwd())
    if name.startswith("torch."):  # such as torch.distributed.run
        name = "ampc" + name[len("torch"):]
    spec = _spec(name)
    if spec is None:
        raise NotFound(f"there is no module {name}", 1)
    if spec.submodule_search_locations is not None:
        spec = _spec(f"{name}.__main__")
        if spec is None:
            raise NotFound(f"{name} is a package without a module {name}.__main__, so it cannot be run", 1)
    loader: Any = spec.loader
    code = loader.get_code(spec.name) if hasattr(loader, "get_code") else None
    if code is None:
        raise NotFound(f"{name} has no Python code that could be run", 1)
    return Program(str(spec.origin), code, spec)


def _spec(name: str) -> Optional[ModuleSpec]:
    """None where the module, or a package around it, is not there. What goes wrong inside those packages is raised."""
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            return None
        raise
    except ValueError:  # a module without a spec
        return None


def _installed(name: str) -> Program:
    """A program of a package beside ampc, by its entry point; else a script in Python on PATH. NotFound where there is neither."""
    file = shutil.which(name)
    entry = _entry_point(name)
    if entry is None and name == "torchrun":  # of torch, in whose place ampc is
        return Program(file or name, "from ampc.distributed.run import main\nmain()\n")
    if entry is not None:
        function = entry.value.partition("[")[0].strip()
        module, _, attribute = function.partition(":")
        return Program(file or name, f"import sys\nimport {module} as _module\nsys.exit(_module.{attribute}())\n")
    if file is None:
        raise NotFound(f"{name}: No such file, and no installed program of Python of this name; a module runs with -m", 2)
    with open(file, "rb") as f:
        first = f.read(200).splitlines()[:2]
    if not (first and first[0].startswith(b"#!") and any(b"python" in line for line in first)):
        raise NotFound(f"{file} is no program in Python", 2)
    return of_file(file)


def _entry_point(name: str) -> Any:
    found: Any = importlib.metadata.entry_points()
    if hasattr(found, "select"):
        return next(iter(found.select(group="console_scripts", name=name)), None)
    return next((e for e in found.get("console_scripts", ()) if e.name == name), None)  # Python 3.9
