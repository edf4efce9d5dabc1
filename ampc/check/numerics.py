"""Rules about formulas that overflow or lose all digits, and for which a stable operator exists."""

from __future__ import annotations

import ast
import re
from typing import Any, Callable, Iterator, List, Optional, Tuple

from . import masks
from .order import Found
from .ranges import dtype_of, needs_no_gradient, range_of
from .reader import Script, name_of, text_of
from .scope import Scope, scope_of, sum_of, without_gradients

PICKS = {"diagonal", "diag", "gather", "index_select", "select", "squeeze", "unsqueeze", "view", "reshape", "flatten", "float", "T"}
BOUNDS = {"clamp", "clamp_", "clamp_min", "clip", "relu", "nan_to_num"}  # a script that calls one already limits the values
LARGEST = 80.0  # exp of it, and a sum of some thousands of them, is finite in float32, where autocast computes exp
SURE = 10.0  # a softmax of values that differ by less gives no 0, in float16 neither
QUOTIENTS = (ast.Div, "div", "div_", "divide", "true_divide")
DIFFERENCES = (ast.Sub, "sub", "sub_", "subtract")
TOTALS = (ast.Add, "add", "add_")
RULES: List[Callable[[Script], Iterator[Found]]] = []


def _text_has(node: ast.AST, *words: str) -> bool:
    return any(word in text_of(node) for word in words)


def _shifted(x: ast.expr, scope: Scope) -> bool:
    """x - max(x), or -x as of a Gaussian, or what has a bound: exp of it does not overflow."""
    if range_of(x, scope)[1] <= LARGEST:
        return True
    x = scope.resolve(x)
    if text_of(x).lstrip("(").startswith("-"):
        return True
    pair = scope.pair(x, *DIFFERENCES)
    return pair is not None and any(word in text_of(scope.resolve(pair[1])) for word in ("max", "logsumexp", "lse"))


def _exp(node: Any, scope: Scope) -> Optional[ast.expr]:
    """x of exp(x), where that can overflow."""
    x = scope.call(scope.resolve(node), "exp", "exp_")
    return None if x is None or _shifted(x, scope) else x


def _softmax_by_hand(node: Any, scope: Scope) -> bool:
    pair = scope.pair(scope.resolve(node), *QUOTIENTS)
    if pair is None:
        return False
    above, total = _exp(_picked(pair[0], scope), scope), _total(pair[1], scope)
    below = _exp(total, scope) if total is not None else None
    return above is not None and below is not None and text_of(above) == text_of(below)


def _total(node: Any, scope: Scope) -> Optional[ast.expr]:
    """x of x.sum(), [:, None] and eps apart."""
    node = _picked(node, scope)
    pair = scope.pair(node, *TOTALS)
    for part in pair or (node,):
        total = scope.call(_picked(part, scope), "sum")
        if total is not None:
            return total
    return None


def _picked(node: Any, scope: Scope) -> Any:
    """Behind .diagonal(), [rows, columns] and the like."""
    node = scope.resolve(node)
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PICKS:
            node = node.func.value if text_of(node.func.value) != "torch" else node.args[0]
        else:
            return node
        node = scope.resolve(node)


def check(script: Script) -> Iterator[Found]:
    """All of them, function by function."""
    bodies = [n for n in ast.walk(script.tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    inner = {id(n) for b in bodies for n in ast.walk(b)}
    outside = [n for n in ast.walk(script.tree) if id(n) not in inner]
    seen = {id(part) for c in script.calls if name_of(c.func) in BOUNDS for x in _bounded(c) for part in _sums(x)}
    for nodes, body in [*((list(ast.walk(b)), b) for b in bodies), (outside, script.tree)]:
        scope = scope_of(script, body)
        named = [x for c in nodes if isinstance(c, ast.Call) and name_of(c.func) in BOUNDS for x in _bounded(c)]
        seen.update(id(part) for x in named if isinstance(x, ast.Name) for part in _sums(scope.resolve(x)))
        for node in nodes:
            node = sum_of(node) if isinstance(node, ast.AugAssign) else node
            if isinstance(node, (ast.BinOp, ast.Call)) and id(node) not in seen:
                seen.add(id(node))
                yield from _one(node, scope, seen)


def _bounded(call: ast.Call) -> List[ast.expr]:
    """What a call of BOUNDS limits: x of x.clamp(0) and of torch.clamp(x, 0)."""
    return [*([call.func.value] if isinstance(call.func, ast.Attribute) else []), *call.args[:1]]


def _sums(node: ast.AST) -> Iterator[ast.AST]:
    """A sum with the sums that are terms of it; any other node by itself."""
    yield node
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        yield from _sums(node.left)
        yield from _sums(node.right)
    elif isinstance(node, ast.UnaryOp):
        yield from _sums(node.operand)


def _one(node: Any, scope: Scope, seen: set) -> Iterator[Found]:
    line = node.lineno
    if scope.pair(node, *QUOTIENTS) is not None and _softmax_by_hand(node, scope):
        yield ("softmax-by-hand", line, "exp(x) / exp(x).sum() overflows for x above 11 in float16, and above 88 in float32",
               "write softmax(x), or cross_entropy(x, labels) where its logarithm is wanted")
    terms = list(_terms(node, 1, scope))
    if len(terms) > 1:
        seen.update(id(part) for part in _sums(node))
        if _has_variance(terms, scope):
            yield ("variance-by-difference", line, "mean(x^2) - mean(x)^2 loses digits, and rounding can make it negative, whose square root is nan",
                   "write x.var(correction=0)")
    x = scope.call(node, "log")
    if x is not None:
        yield from _logarithm(x, scope, line)
        seen.add(id(_picked(x, scope)))  # so that a softmax by hand within it is not told of, too
    root = _root(node, scope)
    if root is not None:
        x = scope.resolve(root)
        of = scope.call(x, "sum")
        squares = of is not None and (_text_has(x, "** 2", "square", "pow(2)") or _square(of, scope) is not None) and not _has_epsilon(x, scope)
        recorded = not scope.unrecorded and id(node) not in without_gradients(scope.script) and not needs_no_gradient(root, scope)
        if squares and recorded:
            yield ("norm-by-hand", line, "the gradient of sqrt at 0 is infinite, and squares of values above 255 overflow float16",
                   "write torch.linalg.vector_norm(x), whose gradient at 0 is 0, or add an epsilon under the root")


def _root(node: Any, scope: Scope) -> Optional[ast.expr]:
    """x of x.sqrt() or x ** 0.5."""
    x = scope.call(node, "sqrt", "sqrt_")
    pair = scope.pair(node, ast.Pow, "pow", "pow_") if x is None else None
    return pair[0] if pair is not None and isinstance(pair[1], ast.Constant) and pair[1].value == 0.5 else x


def _has_epsilon(x: ast.AST, scope: Scope) -> bool:
    """Whether a small number is added to what is squared, or to the squares."""
    def small(side: ast.expr) -> bool:
        return isinstance(side, ast.Constant) and isinstance(side.value, float) and 0 < side.value < 0.1 or bool(
            re.search(r"(^|_)eps", name_of(side).lower()))

    names = [n for n in ast.walk(x) if isinstance(n, ast.Name)]
    parts = [p for n in (x, *(scope.resolve(n) for n in names)) for p in ast.walk(n)]
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Add) and (small(n.left) or small(n.right)) for n in parts)


def _logarithm(x: ast.expr, scope: Scope, line: int) -> Iterator[Found]:
    behind = _picked(x, scope)
    total = scope.call(scope.resolve(x), "sum")
    if _differ_little(scope.call(behind, "softmax", "sigmoid"), scope):
        return
    if scope.call(behind, "softmax") is not None or _softmax_by_hand(behind, scope):
        yield ("log-of-softmax", line, "the logarithm of a probability that rounds to 0 is -inf",
               "write log_softmax(x), or cross_entropy(x, labels)")
    elif scope.call(behind, "sigmoid") is not None or (isinstance(behind, ast.BinOp) and isinstance(behind.op, ast.Sub)
                                                  and scope.call(scope.resolve(behind.right), "sigmoid") is not None):
        yield ("log-of-sigmoid", line, "sigmoid rounds to 0 or 1 for large inputs, and log(p) or log(1 - p) is then -inf",
               "write logsigmoid(x), or binary_cross_entropy_with_logits(x, labels)")
    elif total is not None and _exp(total, scope) is not None:
        yield ("logsumexp-by-hand", line, "exp overflows although the logarithm of the sum is small", "write torch.logsumexp(x, dim)")


def _differ_little(x: Optional[ast.expr], scope: Scope) -> bool:
    low, high = range_of(x, scope) if x is not None else (-LARGEST, LARGEST)
    return high - low < SURE and max(abs(low), abs(high)) < SURE


def _terms(node: ast.AST, sign: int, scope: Scope) -> Iterator[Tuple[int, ast.AST]]:
    """The terms of a sum with their signs."""
    for (operator, *names), second in ((DIFFERENCES, -sign), (TOTALS, sign)):
        pair = scope.pair(node, operator, *names)
        if pair is not None:
            yield from _terms(pair[0], sign, scope)
            yield from _terms(pair[1], second, scope)
            return
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield from _terms(node.operand, -sign, scope)
    else:
        yield sign, node


def _has_variance(terms: List[Tuple[int, ast.AST]], scope: Scope) -> bool:
    """Whether mean(x * x) and mean(x) ** 2, in any spelling, are terms of opposite signs."""
    squares, means = [], []
    for sign, term in terms:
        inner, root = _mean(term, scope), _square(term, scope)
        square = _square(inner, scope) if inner is not None else None
        mean = _mean(root, scope) if root is not None else None
        squares += [(sign, text_of(square))] if square is not None and dtype_of(square, scope) != "float64" else []
        means += [(-sign, text_of(mean))] if mean is not None else []
    return any(pair in means for pair in squares)


def _mean(node: Any, scope: Scope) -> Optional[ast.expr]:
    """x of x.mean() or x.sum() / n."""
    node = scope.resolve(node)
    x = scope.call(node, "mean")
    pair = scope.pair(node, *QUOTIENTS) if x is None else None
    return scope.call(scope.resolve(pair[0]), "sum") if pair is not None else x


def _square(node: Any, scope: Scope) -> Optional[ast.expr]:
    """x of x ** 2, x * x, x.square() or x.pow(2)."""
    node = scope.resolve(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant) and node.right.value == 2:
        return node.left
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and text_of(node.left) == text_of(node.right):
        return node.left
    x = scope.call(node, "square", "pow")
    return x if x is not None and (name_of(node.func) == "square" or any(isinstance(a, ast.Constant) and a.value == 2 for a in node.args)) else None


RULES += [check, masks.check]
