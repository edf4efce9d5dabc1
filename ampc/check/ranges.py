"""What a script shows of values: between which numbers they lie, of which kind they are, and whether a gradient is taken of them."""

from __future__ import annotations

import ast
from typing import Any, Dict, List, Optional, Tuple

from .reader import name_of, text_of
from .scope import Scope

Range = Tuple[float, float]
INF = float("inf")
ALL: Range = (-INF, INF)
OF: Dict[str, Range] = {
    "tanh": (-1, 1), "sin": (-1, 1), "cos": (-1, 1), "sigmoid": (0, 1), "softmax": (0, 1), "erf": (-1, 1), "softsign": (-1, 1), "normalize": (-1, 1),
    "cosine_similarity": (-1, 1), "hardtanh": (-1, 1), "hardsigmoid": (0, 1), "relu6": (0, 6), "one_hot": (0, 1), "rand": (0, 1), "rand_like": (0, 1),
    "log_softmax": (-INF, 0), "logsigmoid": (-INF, 0), "relu": (0, INF), "softplus": (0, INF), "abs": (0, INF), "square": (0, INF), "exp": (0, INF),
    "norm": (0, INF), "vector_norm": (0, INF), "sqrt": (0, INF), "cdist": (0, INF), "atan": (-1.6, 1.6), "atan2": (-3.2, 3.2), "sign": (-1, 1)}
LIMITS = {"clamp", "clamp_", "clip", "clip_", "clamp_min", "clamp_min_", "clamp_max", "clamp_max_", "hardtanh"}
PARTS = {"float", "half", "double", "bfloat16", "to", "type", "detach", "clone", "contiguous", "view", "reshape", "flatten", "squeeze",
         "unsqueeze", "transpose", "permute", "t", "expand", "expand_as", "repeat", "gather", "index_select", "select", "narrow", "diagonal",
         "max", "min", "amax", "amin", "mean", "median", "masked_select", "flip", "roll", "chunk", "split", "unbind", "cpu", "cuda"}
DATA = {"randn", "rand", "randint", "zeros", "ones", "full", "empty", "eye", "arange", "linspace", "logspace", "tensor", "as_tensor",
        "from_numpy", "load", "normal", "randperm", "detach", "zeros_like", "ones_like", "randn_like", "rand_like", "one_hot", "item", "numpy",
        "argmax", "argmin"}
INTEGERS = {"randint", "arange", "randperm", "argmax", "argmin", "argsort", "long", "int", "nonzero", "one_hot", "bincount", "multinomial"}
DTYPES = {**{name: name for name in ("float64", "int64", "int32", "float32", "float16", "bfloat16")}, "double": "float64", "long": "int64",
          "int": "int32", "float": "float32", "half": "float16"}
DEPTH = 12


def _behind(node: Any, scope: Scope) -> Any:
    """What an expression's name stands for; None where an earlier iteration of a loop may have given it."""
    return None if scope.is_carried(node) else scope.resolve(node)


def range_of(node: Any, scope: Scope, depth: int = DEPTH) -> Range:
    """The least and the greatest value that an expression can have, as far as it shows; infinity where it does not."""
    node = _behind(node, scope)
    if depth == 0:
        return ALL
    if isinstance(node, ast.Constant):
        return (float(node.value), float(node.value)) if isinstance(node.value, (int, float)) else ALL
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        low, high = range_of(node.operand, scope, depth - 1)
        return -high, -low
    if isinstance(node, ast.BinOp):
        return _of_operator(node, scope, depth)
    if isinstance(node, ast.Subscript):
        return range_of(node.value, scope, depth - 1)
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT", "values"):
        return range_of(node.value, scope, depth - 1)
    return _of_call(node, scope, depth) if isinstance(node, ast.Call) else ALL


def _of_operator(node: ast.BinOp, scope: Scope, depth: int) -> Range:
    (a, b), (c, d) = range_of(node.left, scope, depth - 1), range_of(node.right, scope, depth - 1)
    if isinstance(node.op, ast.Add):
        return a + c, b + d
    if isinstance(node.op, ast.Sub):
        return a - d, b - c
    if isinstance(node.op, ast.Mult):
        return (0, INF) if text_of(node.left) == text_of(node.right) else _product((a, b), (c, d))
    if isinstance(node.op, ast.Div) and c == d != 0:
        return _product((a, b), (1 / c, 1 / c))
    even = isinstance(node.op, ast.Pow) and c == d and c % 2 == 0 and c > 0
    return (0, max(a * a, b * b) if c == 2 else INF) if even else ALL


def _product(x: Range, y: Range) -> Range:
    ends = [a * b if a and b else 0.0 for a in x for b in y]
    return min(ends), max(ends)


def _of_call(node: ast.Call, scope: Scope, depth: int) -> Range:
    name = name_of(node.func)
    first = scope.call(node, name)
    if first is None:
        return ALL
    if name in LIMITS:
        return _limited(node, first, scope, depth)
    if name in ("minimum", "maximum"):
        others = [range_of(a, scope, depth - 1) for a in (first, *node.args[-1:])]
        pick = min if name == "minimum" else max
        return pick(o[0] for o in others), pick(o[1] for o in others)
    if name == "pow" and range_of(node.args[-1], scope, depth - 1) == (2, 2):
        return 0, INF
    if name == "log":
        return (-INF, 0) if range_of(first, scope, depth - 1)[1] <= 1 else ALL
    if name in ("stack", "cat") and isinstance(first, (ast.List, ast.Tuple)):
        each = [range_of(part, scope, depth - 1) for part in first.elts]
        return min(e[0] for e in each), max(e[1] for e in each)
    return range_of(first, scope, depth - 1) if name in PARTS else OF.get(name, ALL)


def _limited(node: ast.Call, first: ast.expr, scope: Scope, depth: int) -> Range:
    """Of clamp(x, low, high); a limit that is no number is taken for a small one, as clamp(max=limit) is there to bound."""
    name = name_of(node.func).rstrip("_")
    given = [a for a in node.args if a is not first]
    low = high = None
    if name in ("clamp_min", "clamp_max"):
        low, high = (given[0], None) if name == "clamp_min" and given else (None, given[0] if given else None)
    elif given:
        low, high = given[0], given[1] if len(given) > 1 else None
    for k in node.keywords:
        low, high = (k.value if k.arg in ("min", "min_val") else low), (k.value if k.arg in ("max", "max_val") else high)
    a, b = range_of(first, scope, depth - 1)
    if high is not None and not _is_none(high):
        b = min(b, _number(range_of(high, scope, depth - 1)[1]))
    if low is not None and not _is_none(low):
        a = max(a, -_number(-range_of(low, scope, depth - 1)[0]))
    return a, b


def _number(limit: float) -> float:
    return limit if abs(limit) < INF else 1.0


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def needs_no_gradient(node: Any, scope: Scope, depth: int = DEPTH) -> bool:
    """Whether every tensor in an expression is data, as torch.randn(), a batch and x.detach() are, or a gradient that is none of a graph's."""
    if isinstance(node, ast.Name) and f"{node.id}.requires_grad" in scope.script.source:
        return False
    node = _behind(node, scope)
    if depth == 0:
        return False
    if isinstance(node, ast.Name):
        return node.id in scope.batches
    if isinstance(node, ast.Attribute):
        gradient = node.attr == "grad" and "create_graph" not in scope.script.source
        return gradient or node.attr == "data" or node.attr in ("T", "mT") and needs_no_gradient(node.value, scope, depth - 1)
    if isinstance(node, ast.Call):
        return _call_needs_no_gradient(node, scope, depth)
    parts = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.operand] if isinstance(node, ast.UnaryOp) else []
    parts = [node.value] if isinstance(node, ast.Subscript) else parts
    return isinstance(node, ast.Constant) or bool(parts) and all(needs_no_gradient(p, scope, depth - 1) for p in parts)


def _call_needs_no_gradient(node: ast.Call, scope: Scope, depth: int) -> bool:
    name = name_of(node.func)
    if name in DATA and (isinstance(node.func, ast.Attribute) or scope.script.full(node.func).startswith("torch.")):
        return not any(k.arg == "requires_grad" for k in node.keywords)
    first = scope.call(node, name)
    others = [] if name in PARTS or name == "sum" else [a for a in node.args if a is not first]
    return first is not None and name != "requires_grad_" and all(needs_no_gradient(a, scope, depth - 1) for a in (first, *others))


def _dtype_said(node: ast.Call) -> Optional[str]:
    """float64 of x.to(torch.float64), x.double() or torch.zeros(3, dtype=torch.float64); None where the call says none."""
    name = name_of(node.func)
    said: List[str] = [name_of(a) or str(getattr(a, "value", "")) for a in (node.args if name in ("to", "type") else ())]
    said += [name_of(k.value) for k in node.keywords if k.arg == "dtype"]
    return next((DTYPES[word] for word in (name, *said) if word in DTYPES), None)


def dtype_of(node: Any, scope: Scope, depth: int = DEPTH) -> str:
    """The dtype of an expression, where a cast or what makes it shows that; '' elsewhere."""
    node = _behind(node, scope)
    if depth == 0:
        return ""
    if isinstance(node, ast.BinOp):
        sides = [dtype_of(s, scope, depth - 1) for s in (node.left, node.right) if not isinstance(scope.resolve(s), ast.Constant)]
        return "float64" if "float64" in sides else sides[0] if len(set(sides)) == 1 else ""
    if isinstance(node, (ast.UnaryOp, ast.Subscript)):
        return dtype_of(node.operand if isinstance(node, ast.UnaryOp) else node.value, scope, depth - 1)
    if isinstance(node, ast.Attribute):
        return "int64" if node.attr == "indices" else dtype_of(node.value, scope, depth - 1) if node.attr in ("T", "mT", "values") else ""
    if not isinstance(node, ast.Call):
        return ""
    said = _dtype_said(node)
    if said is not None or name_of(node.func) in INTEGERS:
        return said or "int64"
    first = scope.call(node, name_of(node.func))
    others = [a for a in (node.args[1:] if name_of(node.func) == "where" else []) if not isinstance(a, ast.Constant)]
    return "" if first is None else dtype_of(others[0] if others else first, scope, depth - 1)
