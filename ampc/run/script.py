"""Running a program as Python would: sys.argv, sys.path, ``__main__``, tracebacks that begin in the program."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from types import ModuleType, TracebackType
from typing import Any, Callable, List, Optional

from .._events import Listener, forget, listen
from ..nn.modules.module import Module
from . import hook, programs
from .names import missing_text, nearest
from .programs import Program


def run(program: str, args: List[str], find: Callable[[str], Program] = programs.of_file) -> int:
    """Runs a program as ``__main__`` with ampc in torch's place, and returns the exit status; ``find`` says what its name means. SystemExit
    passes through. Another exception prints the program's traceback, and the status is 1."""
    hook.install()
    try:
        found = find(program)
        sys.modules["__main__"] = main = found.module()
        sys.argv[:] = [found.path, *args]
        exec(found.compiled(), main.__dict__)
    except programs.NotFound as error:
        print(f"ampc run: {error}", file=sys.stderr)
        return error.status
    except SystemExit as end:
        if type(end) is SystemExit:
            sys.exit(end.code)  # as whose status ampc.distributed tells it
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        error.__traceback__ = _from_program(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        _advise(error)
        return 1
    return 0


class _TrainingBegins(BaseException):
    """Ends a script that is imported; no ``except Exception`` of its own keeps it."""


class _Stop(Listener):
    def backward_begins(self, loss: Any) -> None:
        raise _TrainingBegins


def load(path: str, name: str) -> ModuleType:
    """The file's module, with ampc in torch's place, not as ``__main__``, and without the command's arguments. A script that trains meanwhile is
    ended at its first backward pass, and a line says so: the module has what it has defined by then. OSError and what its code raises; ValueError
    for no Python file, and for one that ends Python."""
    hook.install()
    sys.argv[:] = [path]
    sys.path[0:0] = [os.path.dirname(os.path.abspath(path))]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses and type hints look for the names that annotations hold
    stop = _Stop()
    listen(stop)
    try:
        spec.loader.exec_module(module)
    except _TrainingBegins:
        print(f"ampc: {path} trains while it is imported; it was stopped at its first backward pass. Put what it does as a program under "
              "`if __name__ == '__main__':`", file=sys.stderr)
    except BaseException as error:
        sys.modules.pop(name, None)
        if isinstance(error, SystemExit):
            raise ValueError(f"{path} ends Python when it is imported (exit status {error.code}), as argparse does where arguments are missing; put "
                             "what it does as a program under `if __name__ == '__main__':`") from None
        raise
    finally:
        forget(stop)
    return module


def _from_program(trace: Optional[TracebackType]) -> Optional[TracebackType]:
    """Without the frames that led to the program; one that does not compile has none."""
    while trace is not None and _leads_there(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _leads_there(file: str) -> bool:
    return os.path.dirname(file) == os.path.dirname(__file__) or file.startswith("<frozen importlib") or file == importlib.util.__file__


def _advise(error: BaseException) -> None:
    """Adds advice about a name that ampc lacks to Python's own message."""
    text = None
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("torch."):
        text = missing_text(str(error.name))
    elif isinstance(error, ImportError) and (error.name or "").split(".")[0] in ("ampc", "torch") and "is not in ampc" not in str(error):
        name = getattr(error, "name_from", None) or str(error).split("'")[1] if "'" in str(error) else ""
        text = missing_text(f"torch{(error.name or '')[4 if (error.name or '').startswith('ampc') else 5:]}.{name}")
    elif isinstance(error, AttributeError) and "is not in ampc" not in str(error):
        obj = getattr(error, "obj", None)
        kind = obj if isinstance(obj, type) else type(obj)
        if isinstance(obj, ModuleType) and obj.__name__.split(".")[0] == "ampc":
            text = missing_text(f"torch{obj.__name__[4:]}.{error.name}")
        elif kind.__module__.split(".")[0] in ("ampc", "torch") and getattr(error, "name", None):
            path = f"{_path_of(kind)}.{error.name}"
            if nearest(path) or not issubclass(kind, Module):  # a module's other names are mostly the script's own mistake
                text = missing_text(path)
    if text:
        frames = traceback.extract_tb(error.__traceback__)
        last = next((f for f in reversed(frames) if f.filename == sys.argv[0]), frames[-1] if frames else None)
        print(f"ampc: {last.filename}:{last.lineno}: {text}" if last else f"ampc: {text}", file=sys.stderr)


def _path_of(kind: type) -> str:
    if kind.__name__ in ("Tensor", "Parameter"):
        return "torch.Tensor"
    package = kind.__module__.split(".")[1:2]
    return ".".join(["torch", *package, kind.__name__])
