"""Says which names of torch ampc has, and finds them in a script without running it."""

from __future__ import annotations

import ast
import importlib
from types import ModuleType
from typing import Any, List, NamedTuple, Optional, Set

from .._names import missing as _missing

_NOTHING = object()


def resolve(path: str) -> Any:
    """What ``torch.a.b`` is in ampc; _NOTHING when it is not there."""
    parts = path.split(".")
    found: Any = importlib.import_module("ampc")
    for i, part in enumerate(parts[1:], 1):
        inside = found
        found = getattr(inside, part, _NOTHING)
        if found is _NOTHING and isinstance(inside, ModuleType):
            try:
                found = importlib.import_module(".".join(["ampc", *parts[1:i + 1]]))
            except ImportError:
                return _NOTHING
        if found is _NOTHING:
            return _NOTHING
    return found


def has(path: str) -> bool:
    """Whether ampc has ``torch.a.b``."""
    return resolve(path) is not _NOTHING


def nearest(path: str) -> Optional[str]:
    """The name most like ``torch.a.b`` among those that ampc has in the same space, or one of the same name elsewhere."""
    where, _, name = path.rpartition(".")
    space = resolve(where) if where else _NOTHING
    if space is _NOTHING:
        return nearest(where) if "." in where else None
    for other in _missing.SPACES:
        resolve(other)  # so that it is loaded
    return _missing.nearest(where, dir(space), name)


def missing_text(path: str) -> str:
    """The message for a name that is missing."""
    return f"{path} is not in ampc{_missing.proposal(nearest(path))}"


class Missing(NamedTuple):
    """A use of a name that ampc lacks, or whose use it refuses."""

    file: str
    line: int
    name: str
    refused: str = ""  # why

    def __str__(self) -> str:
        if self.refused:
            return f"{self.file}:{self.line}: {self.name} is refused: {self.refused}"
        like = nearest(self.name)
        return f"{self.file}:{self.line}: {self.name}" + (f" (nearest: {like})" if like else "")


def _refused(value: Any) -> str:
    """The reason if a function or class only raises an error, from the first line of its docstring; else nothing."""
    first = (getattr(value, "__doc__", None) or "").split("\n")[0] if callable(value) else ""
    kind, _, why = first.partition("Error: ")
    return why.rstrip(".") if kind in ("Runtime", "NotImplemented") else ""


class Reader(ast.NodeVisitor):
    """Finds the names that mean torch or a part of it, and notes the longest chains of attributes on them."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.means: dict[str, str] = {}
        self.found: List[Missing] = []
        self.seen: Set[Missing] = set()
        self.used = 0

    def note(self, path: str, line: int) -> None:
        self.used += 1
        parts = path.split(".")
        for end in range(2, len(parts) + 1):
            value = resolve(".".join(parts[:end]))
            if value is _NOTHING or _refused(value):
                missing = Missing(self.file, line, ".".join(parts[:end]), "" if value is _NOTHING else _refused(value))
                if missing not in self.seen:
                    self.seen.add(missing)
                    self.found.append(missing)
                return
            if not isinstance(value, (ModuleType, type)):
                return  # what an object has, this reader cannot know

    def visit_Import(self, node: ast.Import) -> None:
        for name in node.names:
            path = _as_torch(name.name)
            if path is None:
                continue
            self.means[name.asname or name.name.split(".")[0]] = path if name.asname else "torch"
            if path != "torch":
                self.note(path, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        path = _as_torch(node.module or "") if node.level == 0 else None
        if path is None:
            return
        for name in node.names:
            if name.name == "*":
                continue
            self.means[name.asname or name.name] = f"{path}.{name.name}"
            self.note(f"{path}.{name.name}", node.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain, at = [node.attr], node.value
        while isinstance(at, ast.Attribute):
            chain.append(at.attr)
            at = at.value
        if isinstance(at, ast.Name) and at.id in self.means:
            self.note(".".join([self.means[at.id], *reversed(chain)]), node.lineno)
        else:
            self.visit(at)


def _as_torch(module: str) -> Optional[str]:
    for name in ("torch", "ampc"):
        if module == name or module.startswith(name + "."):
            return "torch" + module[len(name):]
    return None


def read(source: str, file: str) -> Reader:
    """The uses of torch's names in a script's text. SyntaxError as Python gives it."""
    reader = Reader(file)
    reader.visit(ast.parse(source, file))
    return reader
