"""Modules and names of torch that libraries touch, made from the table in ``table`` when somebody asks for them.

``lookup`` makes one name, and ``spec_of`` a module that has no file. Nothing here is loaded by ``import ampc``."""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import re
import sys
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, NoReturn, Optional, Tuple

NOTHING = object()


class Section(NamedTuple):
    """A part of the table: modules that show the same names, and why most of these are refused."""

    modules: Tuple[str, ...]  # the first is the objects' own
    reason: str
    entries: Dict[str, Entry]
    made: Dict[str, Any]


class Entry(NamedTuple):
    """One name, with what it does."""

    name: str
    kind: str  # a word of KINDS
    detail: str  # what the kind needs: a value, members, a path
    section: Section

    @property
    def path(self) -> str:
        """torch's name for it."""
        return f"{self.section.modules[0]}.{self.name}"

    @property
    def error(self) -> str:
        """The message of a refusal."""
        return f"{self.path}: {self.section.reason}"

    def doc(self, begin: str) -> str:
        """A docstring: the reason, and on a line of its own the way out."""
        reason, _, instead = self.section.reason.partition("; ")
        return f"{begin}: {reason}." + (f"\n\n{instead[0].upper()}{instead[1:]}." if instead else "")


# What the words of the table mean; docs/compatibility/library_names.md shows it.
KINDS = {
    "works": "does what torch's does",
    "is": "another name of ampc's",
    "itself": "a decorator or wrapper that returns what it gets",
    "decorates": "takes options, and returns a decorator that returns what it gets",
    "gives": "returns this value, which is right here",
    "nothing": "accepts its arguments and changes nothing, which is right here",
    "around": "a context or decorator that changes nothing, which is right here",
    "value": "a constant",
    "enum": "an enumeration; asking it for another value raises NotImplementedError with the reason",
    "any": "a name for annotations",
    "error": "an exception that nothing here raises",
    "warning": "a warning that nothing here gives",
    "class": "a class without instances: it can be imported, subclassed and asked about; making one raises NotImplementedError with the reason",
    "module": "such a class, which is a subclass of nn.Module",
    "refused": "raises NotImplementedError with the reason",
}


@functools.lru_cache(None)
def sections() -> Tuple[Section, ...]:
    """The table, read."""
    from .table import TABLE
    from .table_distributed import TABLE as DISTRIBUTED

    text = TABLE.strip() + "\n" + DISTRIBUTED.strip()
    return tuple(_section(part) for part in re.split(r"\n(?=\[)", text))


def _section(text: str) -> Section:
    head, reason, *lines = re.sub(r"\n +", " ", text.strip()).split("\n")
    first, *others = head.strip("[]").split()
    section = Section((first, *(first + m if m[0] == "." else m for m in others)), reason.strip(), {}, {})
    for line in lines:
        words, _, names = line.strip().partition(": ")
        kind, _, value = words.partition(" ")
        for name, members, given in re.findall(r"(\w+)(?:\(([^)]*)\)|=(\S+))?", names):
            section.entries[name] = Entry(name, kind, value or members or given, section)
    return section


@functools.lru_cache(None)
def by_module() -> Dict[str, Tuple[Section, ...]]:
    """The sections of each module; none of a module that only holds others."""
    found: Dict[str, Tuple[Section, ...]] = {}
    for section in sections():
        for module in section.modules:
            found[module] = (*found.get(module, ()), section)
            while "." in module:
                module = module.rpartition(".")[0]
                found.setdefault(module, ())
    return found


def entry_of(path: str) -> Optional[Entry]:
    """The table's line for ``torch.a.b``, or None."""
    module, _, name = path.rpartition(".")
    return next((s.entries[name] for s in by_module().get(module, ()) if name in s.entries), None)


def lookup(module: str, name: str) -> Any:
    """What ``name`` of the module ``ampc.x`` is by the table: an object, a module, or NOTHING."""
    path = f"torch{module[len('ampc'):]}.{name}"
    entry = entry_of(path)
    home = "" if entry is None else "ampc" + entry.section.modules[0][len("torch"):]
    if entry is not None and entry.kind == "works" and home != module:
        return getattr(importlib.import_module(home), name)
    if entry is not None and entry.kind != "works":
        made = entry.section.made
        if name not in made:
            made[name] = _MAKERS[entry.kind](entry)
        return made[name]
    if path in by_module() and not isinstance(getattr(sys.modules.get(module), "__dict__", {}).get(name), ModuleType):
        return importlib.import_module(f"{module}.{name}")
    return NOTHING


# -- one maker for each kind -------------------------------------------------------------------------------------------


def _named(made: Any, entry: Entry, doc: str) -> Any:
    made.__name__, made.__qualname__, made.__doc__ = entry.name, entry.name, doc
    made.__module__ = "ampc" + entry.section.modules[0][len("torch"):]
    return made


def _refused(entry: Entry) -> Callable[..., NoReturn]:
    def refused(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise NotImplementedError(entry.error)

    return _named(refused, entry, entry.doc("NotImplementedError"))


def _class(entry: Entry) -> type:
    def refuse(cls: type, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise NotImplementedError(entry.error)

    body: Dict[str, Any] = {"__new__": refuse}
    for method in entry.detail.split():
        body[method] = staticmethod(_refused(entry._replace(name=f"{entry.name}.{method}")))
    bases = (_is(entry._replace(detail="nn.Module")),) if entry.kind == "module" else ()
    return _named(type(entry.name, bases, body), entry, entry.doc("NotImplementedError"))


def _itself(entry: Entry) -> Callable[..., Any]:
    def itself(f: Any = None, *_args: Any, **_kwargs: Any) -> Any:
        return f if f is not None else lambda g: g

    return _named(itself, entry, entry.doc("Its argument itself"))


def _decorates(entry: Entry) -> Callable[..., Any]:
    def decorates(*_args: Any, **_kwargs: Any) -> Any:
        return lambda f: f

    return _named(decorates, entry, entry.doc("A decorator that returns its function"))


def _gives(entry: Entry) -> Callable[..., Any]:
    def gives(*_args: Any, **_kwargs: Any) -> Any:
        return ast.literal_eval(entry.detail)

    return _named(gives, entry, entry.doc(entry.detail))


def _nothing(entry: Entry) -> Callable[..., None]:
    def nothing(*_args: Any, **_kwargs: Any) -> None:
        pass

    return _named(nothing, entry, entry.doc("Nothing"))


def _around(entry: Entry) -> Callable[..., Any]:
    @contextmanager
    def around(*_args: Any, **_kwargs: Any) -> Iterator[None]:
        yield

    return _named(around, entry, entry.doc("A context that changes nothing"))


def _value(entry: Entry) -> Any:
    return ast.literal_eval(entry.detail)


def _enum(entry: Entry) -> Any:
    class Base(enum.Enum):
        @classmethod
        def _missing_(cls, value: object) -> NoReturn:
            raise NotImplementedError(entry.error)

    members = [(name, i) for i, name in enumerate(entry.detail.split())]
    return _named(Base(entry.name, members), entry, entry.doc("Names"))  # type: ignore[call-arg]


def _any(entry: Entry) -> type:
    named = {"__class_getitem__": classmethod(lambda cls, item: cls)}  # some annotations say what it holds: BroadcastingList2[int]
    return _named(type(entry.name, (), named), entry, entry.doc("A name for annotations"))


def _error(entry: Entry) -> type:
    return _named(type(entry.name, (RuntimeError,), {}), entry, entry.doc("Nothing here raises it"))


def _warning(entry: Entry) -> type:
    return _named(type(entry.name, (Warning,), {}), entry, entry.doc("Nothing here gives it"))


def _is(entry: Entry) -> Any:
    path = entry.detail or entry.path[len("torch."):]
    return functools.reduce(getattr, path.split(".") if path != "." else [], sys.modules["ampc"])


_MAKERS: Dict[str, Callable[[Entry], Any]] = {
    "refused": _refused, "class": _class, "module": _class, "itself": _itself, "decorates": _decorates, "gives": _gives,
    "nothing": _nothing, "around": _around, "value": _value,
    "enum": _enum, "any": _any, "error": _error, "warning": _warning, "is": _is,
}


# -- modules without a file --------------------------------------------------------------------------------------------


class _CalledModule(ModuleType):
    """A module that a function shares its name with, such as torch.fx.passes.split_module."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        entry = entry_of("torch" + self.__name__[len("ampc"):])
        assert entry is not None
        return _MAKERS[entry.kind](entry)(*args, **kwargs)


class _Loader:
    """Makes a module of the table, whose names are made when they are asked for, by what ``getter(module's name)`` gives."""

    def __init__(self, getter: Callable[[str], Callable[[str], Any]]) -> None:
        self._getter = getter

    def create_module(self, spec: ModuleSpec) -> Optional[ModuleType]:
        """An ordinary module; one that can be called where a function has its name as well."""
        return _CalledModule(spec.name) if entry_of("torch" + spec.name[len("ampc"):]) is not None else None

    def exec_module(self, module: ModuleType) -> None:
        """Gives it its names."""
        here = by_module()["torch" + module.__name__[len("ampc"):]]
        names: List[str] = sorted({name for section in here for name in section.entries})
        module.__doc__ = f"{here[0].reason}." if here else "Modules of torch that libraries import."
        module.__dict__.update(__all__=names, __getattr__=self._getter(module.__name__), __dir__=lambda: sorted({*vars(module), *names}))


def spec_of(fullname: str, getter: Callable[[str], Callable[[str], Any]]) -> Optional[ModuleSpec]:
    """Of ``ampc.x``, where the table has a module torch.x; ``getter(its name)`` is its ``__getattr__``."""
    if "torch" + fullname[len("ampc"):] not in by_module():
        return None
    loader: Any = _Loader(getter)
    return ModuleSpec(fullname, loader, origin="the table of ampc._names.table", is_package=True)
