"""Autocast's policy as data: which operators and modules run in 16 bits, and which in float32. Policies can be saved and compared.

    careful = policy.default.changed("careful", operators={"softmax": "float32", "gelu": "float32"}, modules={"head.*": "float32"})
    with autocast("cuda", policy=careful): ...
"""

from __future__ import annotations

import os
import threading
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Union
from weakref import WeakKeyDictionary

from . import _C
from ._names.missing import closest
from ._ops import ALIASES as OTHER_NAMES
from ._ops import SHOWN

CATEGORIES = ("keep", "16-bit", "float32", "widest", "refused")  # as csrc/ops/op.h numbers them; ampc's own table has one more
ALIASES = {"matmul": ("mm", "bmm", "matmul", "mv"), "conv1d": ("convolution",), "conv2d": ("convolution",), "conv3d": ("convolution",),
           "scaled_dot_product_attention": ("attention", "fused_attention", "flash_attention"),
           "cross_entropy": ("cross_entropy", "class_entropy", "soft_entropy")}
DTYPES = ("float32", "float16", "bfloat16")


class Difference(NamedTuple):
    """One entry in which two policies differ; None where a policy has none for a module pattern."""

    kind: str  # operator or module
    name: str
    a: Optional[str]
    b: Optional[str]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.a or '-'} -> {self.b or '-'}"


class CastPolicy:
    """Sets the precision of operators, and of modules by their qualified names, under autocast.

    Args:
        name, version: for people, and for files.
        operators: a dict from an operator's name to 'keep' (the inputs' dtype), '16-bit' (products only), 'float32', 'widest' (of the
            inputs' dtypes) or 'refused'. Other operators run as in ampc's own table, which follows torch 2.13's CUDA lists.
        modules: a dict from a pattern to 'float32', 'float16' or 'bfloat16'. A pattern is a name from ``model.named_modules()`` and may
            have * and ?. Such a module runs in that dtype as a whole, with its floating point arguments cast. The last match counts.

    ValueError for unknown names."""

    def __init__(self, name: str, version: str = "1", operators: Optional[Mapping[str, str]] = None,
                 modules: Optional[Mapping[str, str]] = None) -> None:
        self.name, self.version = str(name), str(version)
        self.operators: Mapping[str, str] = MappingProxyType(dict(operators or {}))
        self.modules: Mapping[str, str] = MappingProxyType(dict(modules or {}))
        self._known: WeakKeyDictionary = WeakKeyDictionary()  # module -> dtype or None
        table = bytearray(_categories().values())
        for op, category in self.operators.items():
            for own in _operators(op, category):
                table[_at[own]] = CATEGORIES.index(category)
        for pattern, dtype in self.modules.items():
            if dtype not in DTYPES:
                raise ValueError(f"CastPolicy: module pattern {pattern!r} is given {dtype!r}; expected one of {', '.join(DTYPES)}")
        self._table = bytes(table)

    def changed(self, name: str, version: str = "1", operators: Optional[Mapping[str, str]] = None,
                modules: Optional[Mapping[str, str]] = None) -> CastPolicy:
        """This policy with entries added or replaced, under another name."""
        return CastPolicy(name, version, {**self.operators, **(operators or {})}, {**self.modules, **(modules or {})})

    def category(self, operator: str) -> str:
        """The category of an operator. ValueError for an unknown one."""
        return CATEGORIES[self._table[_at[_operators(operator, "keep")[0]]]]

    def dtype_of(self, module: Any) -> Optional[Any]:
        """The dtype that a module runs in as a whole, None where no pattern fits its name."""
        if module not in self._known:
            import fnmatch

            from ._messages.model_names import Names

            names = Names()
            for each in {module, *names.modules}:
                name = names.of(each) or ""
                fits = [dtype for pattern, dtype in self.modules.items() if fnmatch.fnmatchcase(name, pattern)]
                self._known[each] = getattr(_C, fits[-1]) if fits else None
        return self._known[module]

    def to_dict(self) -> Dict[str, Any]:
        """The content of a policy's file."""
        return {"name": self.name, "version": self.version, "operators": dict(self.operators), "modules": dict(self.modules)}

    def save(self, path: Any) -> None:
        """Writes JSON."""
        import json

        with open(path, "w", encoding="utf-8") as f:
            json.dump(self.to_dict(), f, indent=2)
            f.write("\n")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CastPolicy) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.name, self.version, self._table))

    def __reduce__(self) -> tuple:
        return CastPolicy, (self.name, self.version, dict(self.operators), dict(self.modules))

    def __repr__(self) -> str:
        entries = [f"{k}: {v}" for k, v in [*self.operators.items(), *self.modules.items()]]
        return f"CastPolicy({self.name!r}, version {self.version!r}{', ' + ', '.join(entries) if entries else ''})"


_table: Dict[str, int] = {}
_at: Dict[str, int] = {}  # their positions in it


def _categories() -> Dict[str, int]:
    """Every operator of the table, in its order, with ampc's own category."""
    if not _table:
        numbers = {"keep": 0, "low": 1, "f32": 2, "promote": 3, "banned": 4, "unsafe": 5}
        _table.update({op["name"]: numbers[op["cast"]] for op in _C.op_table()})
        _at.update({name: i for i, name in enumerate(_table)})
    return _table


def known(op: str) -> bool:
    """Whether there is such an operator."""
    try:
        return bool(_operators(op, "keep"))
    except ValueError:
        return False


def _operators(op: str, category: str) -> List[str]:
    """The operators that a name stands for."""
    if category not in CATEGORIES:
        raise ValueError(f"CastPolicy: operator {op!r} is given {category!r}; expected one of {', '.join(CATEGORIES)}")
    known, op = _categories(), OTHER_NAMES.get(op, op)
    names = [r for r in ALIASES.get(op, (op,)) if r in known] or [row for row, shown in SHOWN.items() if shown == op]
    if not names:
        near = closest(op, known, 0.6)
        raise ValueError(f"CastPolicy: there is no operator {op!r}" + (f"; did you mean {near!r}?" if near else ""))
    if category == "16-bit" and any(known[r] != 1 for r in names):
        raise ValueError(f"CastPolicy: {op!r} cannot be '16-bit': only products round their operands; 'keep' leaves it in its inputs' dtype")
    return names


def __getattr__(name: str) -> Any:
    """``default``: ampc's own table."""
    if name != "default":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()["default"] = CastPolicy("ampc")
    return found


def load(path: Any) -> CastPolicy:
    """Reads a policy from a file. OSError from the system; ValueError for another kind of file."""
    import json

    with open(path, encoding="utf-8") as f:
        data = json.load(f)
    wrong = not isinstance(data, dict) or not isinstance(data.get("name"), str) or set(data) - {"name", "version", "operators", "modules"}
    if wrong or not all(isinstance(data.get(k, {}), dict) for k in ("operators", "modules")):
        raise ValueError(f"{os.fspath(path)}: a policy has a name, a version, operators and modules")
    return CastPolicy(data["name"], data.get("version", "1"), data.get("operators"), data.get("modules"))


def diff(a: CastPolicy, b: CastPolicy) -> List[Difference]:
    """The differences of two policies, operators first."""
    found = [Difference("operator", SHOWN[op], CATEGORIES[x], CATEGORIES[y]) for op, x, y in zip(_categories(), a._table, b._table) if x != y]
    found = list(dict.fromkeys(found))  # a function may have several rows
    patterns = dict.fromkeys([*a.modules, *b.modules])
    return found + [Difference("module", p, a.modules.get(p), b.modules.get(p)) for p in patterns if a.modules.get(p) != b.modules.get(p)]


# -- in force -----------------------------------------------------------------------------------------------------


class _State(threading.local):
    chosen: Optional[CastPolicy] = None  # by using(), for regions that name none
    by_module: Optional[CastPolicy] = None  # of the innermost region, where it has patterns for modules


state = _State()


def current() -> Optional[CastPolicy]:
    """Of the innermost region of this thread that has one; None where the table holds."""
    return _C._region_policy()


def category_now(operator: str) -> str:
    """What autocast makes of an operator of the table here and now."""
    policy = current()
    return CATEGORIES[policy._table[_at[operator]] if policy is not None else _categories()[operator]]


class using(_C.Scope):
    """A context that sets the policy of this thread's regions that name none."""

    def __init__(self, policy: Union[CastPolicy, str]) -> None:
        self._policy = given(policy)

    def _changes(self) -> tuple:
        return ((setattr, (state, "chosen", self._policy), setattr, (state, "chosen", state.chosen)),)


def given(policy: Any) -> CastPolicy:
    """A policy, or one by its file. TypeError for anything else."""
    if isinstance(policy, CastPolicy):
        return policy
    if isinstance(policy, (str, os.PathLike)):
        return load(policy)
    raise TypeError(f"autocast: `policy` must be a CastPolicy or the path of one's file, got {type(policy).__name__}")
