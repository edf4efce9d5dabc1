"""The rule about masks whose number float16 cannot hold."""

from __future__ import annotations

import ast
import operator
import re
from typing import Any, Callable, Dict, Iterator, Optional

from .order import Found, regions_dtypes
from .ranges import dtype_of
from .reader import OTHERS, Script, is_off, name_of, text_of
from .scope import Scope, scope_of, wide_by_itself

FILLS = {"masked_fill", "masked_fill_", "where", "index_fill", "index_fill_", "fill_diagonal_", "scatter", "scatter_"}
KEYWORDS = {"value", "other", "input", "src", "fill_value"}
TENSORS = {"tensor", "as_tensor", "scalar_tensor"}
FULL = {"full_like": "like", "new_full": "like", "full": "sized"}
PRODUCTS = {"matmul", "mm", "bmm", "einsum", "baddbmm", "addmm", "linear", "conv1d", "conv2d", "conv3d", "half", "bfloat16"}
WIDE = {"float", "float32", "float64", "double"}
CASTS = {"to", "type", "type_as", "half"}
SHAPES = {"unsqueeze", "squeeze", "view", "reshape", "expand", "expand_as", "transpose", "permute", "repeat", "contiguous", "detach", "clone"}
NO_INDEX = {"int", "str", "len", "next", "hash", "range"}
CONTAINERS = {"dict", "list", "defaultdict", "OrderedDict", "Counter"}
LITERALS = (ast.Dict, ast.List, ast.ListComp, ast.DictComp)
OPERATORS: Dict[type, Callable[[float, float], float]] = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
                                                          ast.Div: operator.truediv, ast.Pow: operator.pow}
LARGEST, NEVER = 65504.0, 1e300  # beyond the second it stands for infinity


def uses_float16(script: Script) -> bool:
    """Whether something in the script is float16: a region, a cast, a dtype, or a GradScaler that is not beside bfloat16 alone."""
    regions = set(regions_dtypes(script))
    if "float16" in regions or any(_names_float16(node, script) for node in ast.walk(script.tree)):
        return True
    scalers = [c for c in script.calls if name_of(c.func) == "GradScaler" and not is_off(c)]
    return bool(scalers) and regions != {"bfloat16"}


def _names_float16(node: ast.AST, script: Script) -> bool:
    if isinstance(node, ast.Call) and name_of(node.func) == "half" and not node.args:
        return True
    if isinstance(node, ast.keyword):
        return node.arg == "fp16" and isinstance(node.value, ast.Constant) and node.value.value is True
    if isinstance(node, ast.Constant):
        return node.value in ("float16", "fp16", "half", "torch.float16")
    return name_of(node) in ("float16", "HalfTensor") or script.full(node) == "torch.half"


class _Masks:
    """One function's."""

    def __init__(self, scope: Scope, exempt: set) -> None:
        self.scope, self.exempt = scope, exempt
        self.open: set = set()  # ids of what `number` looks at now: names may stand for each other

    # -- numbers ---------------------------------------------------------------------------------------------

    def number(self, node: Any) -> Optional[float]:
        """A number that is written in the script, here or where a name gets its value; None for anything else."""
        node = self.scope.resolve(node)
        if id(node) in self.exempt or id(node) in self.open:
            return None
        self.open.add(id(node))
        try:
            return self._written(node)
        finally:
            self.open.discard(id(node))

    def _written(self, node: Any) -> Optional[float]:
        if isinstance(node, ast.Constant):
            return float(node.value) if isinstance(node.value, (int, float)) and abs(node.value) < 1e308 else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.number(node.operand)
            return None if value is None else -value
        if isinstance(node, ast.BinOp):
            return self._computed(node)
        if isinstance(node, ast.Attribute):
            return self._limit(node)
        return self._called(node) if isinstance(node, ast.Call) else None

    def _computed(self, node: ast.BinOp) -> Optional[float]:
        a, b = self.number(node.left), self.number(node.right)
        if a is None or b is None:
            return None
        try:
            value = OPERATORS[type(node.op)](a, b)
        except (KeyError, ArithmeticError):
            return None
        return value if isinstance(value, float) else None

    def _limit(self, node: ast.Attribute) -> Optional[float]:
        """torch.finfo(torch.float32).min."""
        of = self.scope.resolve(node.value)
        known = isinstance(of, ast.Call) and name_of(of.func) == "finfo" and of.args and name_of(of.args[0]) in WIDE | {"bfloat16"}
        return {"min": -3.4e38, "max": 3.4e38}.get(node.attr) if known else None

    def _called(self, node: ast.Call) -> Optional[float]:
        """float("-1e9"), torch.tensor(-1e9)."""
        if not node.args:
            return None
        first = node.args[0]
        if isinstance(node.func, ast.Name) and node.func.id == "float" and isinstance(first, ast.Constant):
            try:
                return float(first.value)  # type: ignore[arg-type]
            except (TypeError, ValueError):
                return None
        return self.number(first) if name_of(node.func) in TENSORS and self.scope.script.full(node.func).startswith("torch.") else None

    def _filled(self, node: Any) -> Optional[float]:
        """The number that torch.full_like(x, -1e9) and the like give a tensor that may be float16."""
        node = self.scope.resolve(node)
        if not isinstance(node, ast.Call) or name_of(node.func) not in FULL or id(node) in self.exempt:
            return None
        dtype = next((k.value for k in node.keywords if k.arg == "dtype"), None)
        like = FULL[name_of(node.func)] == "like"
        if dtype is None and not like or dtype is not None and name_of(dtype) not in ("float16", "half", "dtype"):
            return None
        of = node.args[0] if name_of(node.func) == "full_like" and node.args else getattr(node.func, "value", None)
        if like and of is not None and self.wide(of):
            return None
        given = [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "fill_value")]
        return self.number(given[0]) if given else None

    def _value(self, node: ast.AST) -> Optional[float]:
        value = self.number(node)
        return self._filled(node) if value is None else value

    # -- tensors ---------------------------------------------------------------------------------------------

    def wide(self, node: Any, depth: int = 0) -> bool:
        """Whether a tensor is float32 or float64 by the casts that the script shows."""
        node = self.scope.resolve(node)
        if depth > 20:
            return False
        if isinstance(node, ast.BinOp):
            return not isinstance(node.op, ast.MatMult) and (self.wide(node.left, depth + 1) or self.wide(node.right, depth + 1))
        if isinstance(node, (ast.Subscript, ast.UnaryOp)):
            return self.wide(node.value if isinstance(node, ast.Subscript) else node.operand, depth + 1)
        if not isinstance(node, ast.Call):
            return False
        name = name_of(node.func)
        said = [text_of(a).split(".")[-1].strip("'") for a in (*(node.args if name in ("to", "type") else ()), *(k.value for k in node.keywords))]
        if name in ("float", "double") or WIDE & set(said):
            return True
        if name in PRODUCTS | CASTS:
            return False
        of = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        return any(self.wide(a, depth + 1) for a in of)

    def _is_integer(self, node: Any) -> bool:
        """Whether a tensor holds labels or indices, by what makes it, or by its name."""
        named = re.search(r"(^|_)(labels?|targets?|ids|idx|index|indices|tokens)$", name_of(node).lower())
        return bool(named) or dtype_of(node, self.scope).startswith("int")

    def _is_mask(self, node: ast.expr) -> bool:
        """1 - m, m - 1, or what is called a mask, where it may be float16; a bool times a number is float32."""
        cast = named = False
        while True:
            named = named or any(word in name_of(node).lower() for word in ("mask", "pad"))
            node = self.scope.resolve(node)
            if isinstance(node, ast.Subscript):
                node = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SHAPES | CASTS:
                cast = cast or node.func.attr in CASTS
                node = node.func.value
            else:
                break
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            one = [isinstance(side, ast.Constant) and side.value == 1 for side in (node.left, node.right)]
            return sum(one) == 1
        boolean = isinstance(node, (ast.Compare, ast.BoolOp)) or isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert)
        return cast if boolean else named

    def _picks_many(self, index: ast.expr) -> bool:
        """Whether x[index] = value is an assignment to a tensor by a mask, a slice or indices, not to one entry of some container."""
        if isinstance(index, ast.Tuple):
            return any(self._picks_many(part) for part in index.elts)
        if isinstance(index, ast.Name) and index.id in self.scope.loops:
            return False
        index = self.scope.resolve(index)
        if isinstance(index, ast.UnaryOp):
            return isinstance(index.op, ast.Invert)
        if isinstance(index, ast.Constant):
            return index.value is Ellipsis
        return not isinstance(index, (ast.Subscript, ast.JoinedStr)) and not (isinstance(index, ast.Call) and name_of(index.func) in NO_INDEX)

    # -- findings ------------------------------------------------------------------------------------------------

    def _too_low(self, node: ast.AST) -> bool:
        value = self._value(node)
        return value is not None and -NEVER < value < -LARGEST

    def found(self, node: Any) -> Iterator[ast.AST]:
        """The numbers of a statement or expression that float16 cannot hold."""
        if isinstance(node, ast.Call) and name_of(node.func) in FILLS:
            yield from self._filling(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript) and self._too_low(node.value):
            target = node.targets[0]
            of = self.scope.resolve(target.value)
            container = isinstance(of, LITERALS) or isinstance(of, ast.Call) and name_of(of.func) in CONTAINERS
            if not container and self._picks_many(target.slice) and not self.scope.is_foreign(target.value) and not (
                    self.wide(target.value) or self._is_integer(target.value)):
                yield node.value
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for a, b in ((node.left, node.right), (node.right, node.left)):
                value = self.number(a)
                if value is not None and LARGEST < abs(value) < NEVER and self._is_mask(b) and not self.wide(b):
                    yield a
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            for side in (node.left, node.right):
                yield from (part for part in self._factors(side) if self._is_filled_low(part))

    def _factors(self, node: ast.expr) -> list:
        is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
        return [*self._factors(node.left), *self._factors(node.right)] if is_product else [node]  # type: ignore[attr-defined]

    def _is_filled_low(self, node: ast.expr) -> bool:
        value = self._filled(node)
        return value is not None and -NEVER < value < -LARGEST

    def _filling(self, call: ast.Call) -> Iterator[ast.AST]:
        full = self.scope.script.full(call.func)
        if full.split(".")[0] in OTHERS:
            return
        values = [*call.args, *(k.value for k in call.keywords if k.arg in KEYWORDS)]
        function = full.startswith("torch.")
        where = name_of(call.func) == "where"
        choices = values[1:] if where and function else values
        tensors = choices if where else call.args[:1] if function else []
        if not function and isinstance(call.func, ast.Attribute):
            tensors = [*tensors, call.func.value]
        if any(self.wide(t) or self._is_integer(t) for t in tensors) or where and function and all(self.number(c) is not None for c in choices):
            return
        yield from (v for v in choices if self._too_low(v))


def check(script: Script) -> Iterator[Found]:
    """Every mask of the script, function by function."""
    if not uses_float16(script):
        return
    exempt = wide_by_itself(script)
    seen = set(exempt)
    for body in (*script.functions, script.tree):
        masks = _Masks(scope_of(script, body), exempt)
        for node in ast.walk(body):
            if id(node) not in seen:
                seen.add(id(node))
                for value in masks.found(node):
                    yield ("mask-beyond-half", node.lineno, f"{text_of(value)} is below float16's range: a fill refuses it, and elsewhere it becomes "  # type: ignore[attr-defined]
                           "-inf, and the softmax of a row that is masked completely is then nan",
                           "write torch.finfo(x.dtype).min, or float('-inf') where no row is masked completely")
