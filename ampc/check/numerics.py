"""Rules about formulas that overflow or lose all digits, and for which a stable operator exists."""

from __future__ import annotations

import ast
from typing import Any, Callable, Dict, Iterator, List, Optional

from .order import Found
from .reader import Script, name_of, text_of

PICKS = {"diagonal", "diag", "gather", "index_select", "select", "squeeze", "unsqueeze", "view", "reshape", "flatten", "float", "T"}
BOUNDS = {"clamp", "clamp_", "clamp_min", "clip", "relu", "nan_to_num"}  # a script that calls one already limits the values
RULES: List[Callable[[Script], Iterator[Found]]] = []


class _Scope:
    """The assignments of a function; a name stands for its last one above a line."""

    def __init__(self, body: Any, script: Script) -> None:
        self.script = script
        self.values: Dict[str, List[tuple]] = {}
        self.unrecorded = any(_text_has(d, "no_grad", "inference_mode") for d in getattr(body, "decorator_list", []))
        for node in ast.walk(body):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.values.setdefault(node.targets[0].id, []).append((node.lineno, node.value))

    def resolve(self, node: Any, line: int) -> Any:
        """The expression behind a name; the node itself otherwise."""
        for _ in range(8):
            earlier = [v for at, v in self.values.get(node.id, []) if at < line] if isinstance(node, ast.Name) else []
            if not earlier:
                return node
            line, node = earlier[-1].lineno, earlier[-1]
        return node

    def call(self, node: Any, *names: str) -> Optional[ast.expr]:
        """The first operand of torch.exp(x) or x.exp(); None for any other function, one of the script's own by that name, too."""
        if not isinstance(node, ast.Call) or name_of(node.func) not in names:
            return None
        full = self.script.full(node.func)
        if full.startswith("torch."):
            return node.args[0] if node.args else None
        if isinstance(node.func, ast.Name) or full.split(".")[0] in self.script.imported.values():
            return None
        operand: ast.expr = node.func.value  # type: ignore[attr-defined]
        return None if self._is_foreign(operand, node.lineno) else operand

    def _is_foreign(self, node: ast.expr, line: int) -> bool:
        """Whether an array of another package, such as np.asarray(a), is a part of the expression."""
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        return any(self.script.is_foreign(n) for n in (*ast.walk(node), *(self.resolve(name, line) for name in names)))


def _text_has(node: ast.AST, *words: str) -> bool:
    return any(word in text_of(node) for word in words)


def _shifted(x: ast.expr, scope: _Scope, line: int) -> bool:
    """x - max(x), or -x as of a Gaussian: exp of it does not overflow."""
    x = scope.resolve(x, line)
    if text_of(x).lstrip("(").startswith("-"):
        return True
    if not (isinstance(x, ast.BinOp) and isinstance(x.op, ast.Sub)):
        return False
    return any(word in text_of(scope.resolve(x.right, line)) for word in ("max", "logsumexp", "lse"))


def _exp(node: Any, scope: _Scope, line: int) -> Optional[ast.expr]:
    """x of exp(x), where that can overflow."""
    node = scope.resolve(node, line)
    x = scope.call(node, "exp")
    return None if x is None or _shifted(x, scope, line) else x


def _softmax_by_hand(node: Any, scope: _Scope, line: int) -> bool:
    node = scope.resolve(node, line)
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)):
        return False
    above, total = _exp(_picked(node.left, scope, line), scope, line), scope.call(scope.resolve(node.right, line), "sum")
    below = _exp(total, scope, line) if total is not None else None
    return above is not None and below is not None and text_of(above) == text_of(below)


def _picked(node: Any, scope: _Scope, line: int) -> Any:
    """Behind .diagonal(), [rows, columns] and the like."""
    node = scope.resolve(node, line)
    while True:
        line = min(line, node.lineno)  # x = x.view(...) is of an earlier x
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PICKS:
            node = node.func.value if text_of(node.func.value) != "torch" else node.args[0]
        else:
            return node
        node = scope.resolve(node, line)


def check(script: Script) -> Iterator[Found]:
    """All of them, function by function."""
    bodies = [n for n in ast.walk(script.tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    inner = {id(n) for b in bodies for n in ast.walk(b)}
    outside = [n for n in ast.walk(script.tree) if id(n) not in inner]
    seen = {id(c.func.value) for c in script.calls if name_of(c.func) in BOUNDS and isinstance(c.func, ast.Attribute)}
    for nodes, scope in [*((list(ast.walk(b)), _Scope(b, script)) for b in bodies), (outside, _Scope(script.tree, script))]:
        for node in nodes:
            if isinstance(node, (ast.BinOp, ast.Call)) and id(node) not in seen:
                seen.add(id(node))
                yield from _one(node, scope, seen)
    half = any(name_of(c.func) in ("half", "GradScaler") for c in script.calls) or "float16" in script.source
    for call in script.calls if half else []:
        yield from _mask(call)


def _one(node: Any, scope: _Scope, seen: set) -> Iterator[Found]:
    line = node.lineno
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Div) and _softmax_by_hand(node, scope, line):
            yield ("softmax-by-hand", line, "exp(x) / exp(x).sum() overflows for x above 11 in float16, and above 88 in float32",
                   "write softmax(x), or cross_entropy(x, labels) where its logarithm is wanted")
        elif isinstance(node.op, ast.Sub) and _is_variance(node, scope, line):
            yield ("variance-by-difference", line, "mean(x^2) - mean(x)^2 loses digits, and rounding can make it negative, whose square root is nan",
                   "write x.var(correction=0)")
        return
    x = scope.call(node, "log")
    if x is not None:
        yield from _logarithm(x, scope, line)
        seen.add(id(_picked(x, scope, line)))  # so that a softmax by hand within it is not told of, too
    root = scope.call(node, "sqrt")
    if root is not None:
        x = scope.resolve(root, line)
        squares = isinstance(x, ast.Call) and name_of(x.func) == "sum" and _text_has(x, "** 2", "square", "pow(2)")
        if squares and not scope.unrecorded:
            yield ("norm-by-hand", line, "the gradient of sqrt at 0 is infinite, and squares of values above 255 overflow float16",
                   "write torch.linalg.vector_norm(x), whose gradient at 0 is 0, or add an epsilon under the root")


def _logarithm(x: ast.expr, scope: _Scope, line: int) -> Iterator[Found]:
    behind = _picked(x, scope, line)
    total = scope.call(scope.resolve(x, line), "sum")
    if scope.call(behind, "softmax") is not None or _softmax_by_hand(behind, scope, line):
        yield ("log-of-softmax", line, "the logarithm of a probability that rounds to 0 is -inf",
               "write log_softmax(x), or cross_entropy(x, labels)")
    elif scope.call(behind, "sigmoid") is not None or (isinstance(behind, ast.BinOp) and isinstance(behind.op, ast.Sub)
                                                  and scope.call(scope.resolve(behind.right, line), "sigmoid") is not None):
        yield ("log-of-sigmoid", line, "sigmoid rounds to 0 or 1 for large inputs, and log(p) or log(1 - p) is then -inf",
               "write logsigmoid(x), or binary_cross_entropy_with_logits(x, labels)")
    elif total is not None and _exp(total, scope, line) is not None:
        yield ("logsumexp-by-hand", line, "exp overflows although the logarithm of the sum is small", "write torch.logsumexp(x, dim)")


def _is_variance(node: ast.BinOp, scope: _Scope, line: int) -> bool:
    """mean(x * x) - mean(x) ** 2, in any spelling of squares."""
    left, right = scope.resolve(node.left, line), scope.resolve(node.right, line)
    inner = scope.call(left, "mean")
    squared, mean = (_square(inner, scope, line) if inner is not None else None), _square(right, scope, line)
    mean = scope.resolve(mean, line) if mean is not None else None
    of = scope.call(mean, "mean") if mean is not None else None
    return squared is not None and of is not None and text_of(squared) == text_of(of)


def _square(node: Any, scope: _Scope, line: int) -> Optional[ast.expr]:
    """x of x ** 2, x * x, x.square() or x.pow(2)."""
    node = scope.resolve(node, line)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant) and node.right.value == 2:
        return node.left
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and text_of(node.left) == text_of(node.right):
        return node.left
    x = scope.call(node, "square", "pow")
    return x if x is not None and (name_of(node.func) == "square" or any(isinstance(a, ast.Constant) and a.value == 2 for a in node.args)) else None


def _is_wide(method: ast.AST) -> bool:
    """Whether the tensor of a method is cast to float32 or float64 just before."""
    of = method.value if isinstance(method, ast.Attribute) else None
    if not isinstance(of, ast.Call):
        return False
    to = [text_of(a).split(".")[-1] for a in (*of.args, *(k.value for k in of.keywords))]
    return name_of(of.func) in ("float", "double") or name_of(of.func) in ("to", "type") and bool({"float", "float32", "float64", "double"} & set(to))


def _mask(call: ast.Call) -> Iterator[Found]:
    if name_of(call.func) not in ("masked_fill", "masked_fill_", "where") or _is_wide(call.func):
        return
    for a in call.args:
        sign = -1 if isinstance(a, ast.UnaryOp) and isinstance(a.op, ast.USub) else 1
        value = a.operand if isinstance(a, ast.UnaryOp) else a
        number = value.value if isinstance(value, ast.Constant) else None
        if isinstance(number, (int, float)) and -1e300 < sign * number < -65504:
            yield ("mask-beyond-half", call.lineno, f"{text_of(a)} is below float16's range and becomes -inf; the softmax of a row that "
                   "is masked completely is then nan", "write torch.finfo(x.dtype).min, or float('-inf') where no row is masked completely")


RULES.append(check)
