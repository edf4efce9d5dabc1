"""Follows a script's imports, by syntax alone: which modules of installed packages it loads, and which names of torch these lack in ampc.

Nothing is executed. A module is read where a script, or a module that is read, imports it outside functions; a name that a package hands out
lazily is looked for among the definitions of its files. Packages that never import torch are left out."""

from __future__ import annotations

import ast
import re
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from .names import _NOTHING, Reader, read, resolve

# Modules that other packages add to torch, for devices of their own.
NOT_TORCHS = frozenset({"cann", "hpu", "ipu", "mlu", "musa", "neuron", "npu", "qaic", "sdaa", "spyre", "tpu", "xla"})
_CATCHES = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"}
_TORCH = re.compile(rb"^\s*(?:import|from) torch\b", re.M)
_STDLIB = getattr(sys, "stdlib_module_names", frozenset(sys.builtin_module_names))
_DEFINED = re.compile(r"^(?:class|def) (\w+)|^(\w+)(?:: [^=\n]+)? = ", re.M)


class Use(NamedTuple):
    """A name of torch that a module uses and ampc lacks."""

    name: str
    module: str
    file: str
    line: int
    on_import: bool  # outside functions, conditions and what catches the error


class _Import(NamedTuple):
    """An import, outside functions, or of a script anywhere."""

    module: str
    names: Tuple[str, ...]  # that are taken from it
    level: int
    sure: bool  # outside conditions and what catches the error


class _ModuleReader(Reader):
    """Notes uses, with where they stand, and what a module imports. ``module``: its name, '' of the script."""

    def __init__(self, module: str, file: str) -> None:
        super().__init__(file)
        self.module = module
        self.uses: List[Use] = []
        self.imports: List[_Import] = []
        self.bound: Set[str] = set()
        self._packages: Dict[str, str] = {}  # names that mean a module
        self._inside = self._caught = 0

    def _imported(self, module: str, names: Tuple[str, ...], level: int) -> None:
        if not self._inside or not self.module:
            self.imports.append(_Import(module, names, level, not self._caught or not self.module))

    def note(self, path: str, line: int) -> None:
        self.used += 1
        parts = path.split(".")
        if len(parts) > 1 and parts[1] in NOT_TORCHS:
            return
        for end in range(2, len(parts) + 1):
            name = ".".join(parts[:end])
            value = resolve(name)
            if value is _NOTHING:
                self.uses.append(Use(name, self.module, self.file, line, not self._inside and not self._caught))
                return
            if not isinstance(value, (type(sys), type)):
                return

    def _visit_inside(self, node: Any) -> None:
        a = node.args
        types = [p.annotation for p in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if p is not None] + [node.returns]
        if "annotations" in self.bound:  # from __future__: types are not evaluated
            types = []
        for evaluated in [*node.decorator_list, *a.defaults, *filter(None, [*a.kw_defaults, *types])]:
            self.visit(evaluated)
        self._inside += 1
        for child in node.body:
            self.visit(child)
        self._inside -= 1

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.bound.add(node.name)
        self._visit_inside(node)

    visit_AsyncFunctionDef = _visit_inside

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._inside += 1
        self.generic_visit(node)
        self._inside -= 1

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.bound.add(node.name)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.bound.add(node.id)

    def visit_If(self, node: ast.If) -> None:
        """What stands under a condition may not run: it is not said to stop an import. TYPE_CHECKING never is true."""
        self.visit(node.test)
        self._caught += 1
        body = [] if "TYPE_CHECKING" in ast.unparse(node.test) else node.body
        for child in [*body, *node.orelse]:
            self.visit(child)
        self._caught -= 1

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._caught += 1
        self.generic_visit(node)
        self._caught -= 1

    def visit_Try(self, node: ast.Try) -> None:
        caught = any(h.type is None or _CATCHES & set(re.findall(r"\w+", ast.unparse(h.type))) for h in node.handlers)
        self._caught += caught
        for statement in node.body:
            self.visit(statement)
        self._caught += 1 - caught
        for child in [*node.handlers, *node.orelse, *node.finalbody]:
            self.visit(child)
        self._caught -= 1

    def visit_Import(self, node: ast.Import) -> None:
        super().visit_Import(node)
        for name in node.names:
            self.bound.add(name.asname or name.name.split(".")[0])
            self._packages[name.asname or name.name.split(".")[0]] = name.name if name.asname else name.name.split(".")[0]
            self._imported(name.name, (), 0)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        super().visit_ImportFrom(node)
        names = tuple(n.name for n in node.names)
        self.bound |= {n.asname or n.name for n in node.names}
        self._imported(node.module or "", names, node.level)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        super().visit_Attribute(node)
        if isinstance(node.value, ast.Name) and node.value.id in self._packages:
            self._imported(self._packages[node.value.id], (node.attr,), 0)


class Follower:
    """Reads a script and all that it loads. ``uses`` holds the names that are missing, and ``reached`` the modules that were read."""

    def __init__(self, script: str) -> None:
        self._path = [str(Path(script).resolve().parent), *sys.path]
        self._specs: Dict[str, Optional[ModuleSpec]] = {}
        self._mentions: Dict[str, bool] = {}
        self._defined: Dict[str, Dict[str, str]] = {}
        self._readers: Dict[str, _ModuleReader] = {"": _read("", script)}
        surely = self._walk(True)
        self.reached = self._walk(False)
        self.uses = [use._replace(on_import=use.on_import and module in surely)
                     for module in sorted(self.reached) for use in self._readers[module].uses]

    def _walk(self, sure: bool) -> Set[str]:
        """The modules that the script loads; ``sure``: whatever any condition says."""
        reached: Set[str] = set()
        waiting = [""]
        while waiting:
            module = waiting.pop()
            reader = self._reader(module)
            if module in reached or reader is None:
                continue
            reached.add(module)
            spec = self._specs.get(module)
            package = module if spec is not None and spec.submodule_search_locations is not None else module.rpartition(".")[0]
            for found in reader.imports:
                if found.sure or not sure:
                    waiting += self._loaded(_absolute(found, package), found.names)
        return reached - {""}

    def _reader(self, module: str) -> Optional[_ModuleReader]:
        if module not in self._readers:
            spec = self._spec(module)
            if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
                return None
            self._readers[module] = _read(module, spec.origin)
        return self._readers[module]

    def _loaded(self, module: str, names: Tuple[str, ...]) -> Iterator[str]:
        """The modules that ``from module import names`` loads. Names that a package does not bind come from the file that defines them."""
        parts = module.split(".")
        if parts[0] in ("", "torch", "ampc") or parts[0] in _STDLIB or not self._concerns(parts[0]):
            return
        for end in range(1, len(parts) + 1):
            yield ".".join(parts[:end])
        spec = self._spec(module)
        if spec is None or spec.submodule_search_locations is None:
            return
        reader = self._reader(module)
        for name in names:
            if self._spec(f"{module}.{name}") is not None:
                yield f"{module}.{name}"
            elif reader is not None and name not in reader.bound and name != "*":
                yield self._definitions(parts[0]).get(name, module)

    def _spec(self, module: str) -> Optional[ModuleSpec]:
        """Where a module lies, found without importing its package."""
        if module not in self._specs:
            parent, _, _ = module.rpartition(".")
            around = self._spec(parent) if parent else None
            places = self._path if not parent else around.submodule_search_locations if around is not None else None
            self._specs[module] = PathFinder.find_spec(module, list(places)) if places else None
        return self._specs[module]

    def _files(self, package: str) -> Iterator[Path]:
        spec = self._spec(package)
        if spec is not None and spec.submodule_search_locations is not None:
            for place in spec.submodule_search_locations:
                yield from Path(place).rglob("*.py")
        elif spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
            yield Path(spec.origin)

    def _concerns(self, package: str) -> bool:
        """Whether some file of the package imports torch; of what lies beside the script it is taken for granted."""
        if package not in self._mentions:
            files = list(self._files(package))
            own = bool(files) and Path(self._path[0]) in files[0].parents and "site-packages" not in files[0].parts
            self._mentions[package] = own or any(_TORCH.search(file.read_bytes()) for file in files)
        return self._mentions[package]

    def _definitions(self, package: str) -> Dict[str, str]:
        """Which module defines a class, function or value of this name; of several the one with the shortest name."""
        if package not in self._defined:
            found: Dict[str, str] = {}
            for file in self._files(package):
                spec = self._spec(package)
                root = Path((spec.submodule_search_locations or [""])[0]) if spec is not None else Path()
                if not file.is_relative_to(root):
                    continue
                module = ".".join([package, *file.relative_to(root).with_suffix("").parts]).removesuffix(".__init__")
                for match in _DEFINED.finditer(file.read_text(encoding="utf-8", errors="replace")):
                    name = match[1] or match[2]
                    if name not in found or len(module) < len(found[name]):
                        found[name] = module
            self._defined[package] = found
        return self._defined[package]


def _read(module: str, file: str) -> _ModuleReader:
    """A file, read; of one that cannot be read nothing."""
    reader = _ModuleReader(module, file)
    try:
        reader.visit(ast.parse(Path(file).read_bytes(), file))
    except (OSError, SyntaxError, ValueError, RecursionError):
        pass
    return reader


def _absolute(found: _Import, package: str) -> str:
    """The module of an import that may be relative to a package."""
    if not found.level:
        return found.module
    parts = package.split(".")
    return ".".join(filter(None, [*parts[:len(parts) - found.level + 1], found.module]))


def lines(script: str) -> Tuple[List[str], bool]:
    """What to print of the packages that a script imports, and whether one of them cannot be imported."""
    follower = Follower(script)
    by_package: Dict[str, List[Use]] = {}
    for use in follower.uses:
        by_package.setdefault(use.module.split(".")[0], []).append(use)
    told: List[str] = []
    for package in sorted({module.split(".")[0] for module in follower.reached}):
        uses = by_package.get(package, [])
        stops = {use.name: use for use in reversed(uses) if use.on_import}
        later = sorted({use.name for use in uses} - set(stops))
        read = sum(module.split(".")[0] == package for module in follower.reached)
        told += [f"{package}: {use.name} is missing on import ({use.file}:{use.line})" for use in sorted(stops.values())]
        if later:
            told.append(f"{package}: missing where it is called or under a condition: {', '.join(later)}")
        if not uses:
            told.append(f"{package}: {read} module{'s' * (read != 1)} read, no name of torch is missing")
    return told, any(use.on_import for use in follower.uses)


def report(files: List[str]) -> int:
    """Prints, for each use of a name that ampc lacks or refuses, file, line and name, and which names the packages that a file imports lack.
    Returns 0 when all are there, but those that packages use in functions alone, 1 when not, 2 for a file that cannot be read."""
    status = 0
    for file in files:
        try:
            with open(file, encoding="utf-8") as f:
                reader = read(f.read(), file)
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            print(f"ampc run: {file}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
            status = 2
            continue
        for missing in sorted(reader.found, key=lambda m: m.line):
            print(missing)
        if reader.found:
            status = max(status, 1)
        else:
            print(f"{file}: {reader.used} uses of torch's names, all of them in ampc")
        told, stops = lines(file)
        for line in told:
            print(line)
        status = max(status, int(stops))
    return status
