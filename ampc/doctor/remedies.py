"""What to write in place of an operator that left its format's range. The advice depends on the operator, on what came before it, and on
what followed."""

from __future__ import annotations

from typing import List

PRODUCTS = {"mm", "bmm", "matmul", "linear", "addmm", "baddbmm", "convolution", "convolution_weight", "mv", "dot", "einsum",
            "scaled_dot_product_attention"}
SUMS = {"sum", "mean", "cumsum", "norm", "prod", "var", "std"}
AROUND = "or put `with autocast(enabled=False):` around it and compute on x.float()"


def replacement(op: str, dtype: str, before: List[str], after: List[str], backward: bool, negative: bool, from_inf: bool) -> str:
    """``before``: the operators that made its inputs, nearest first; ``after``: those that what is not finite went on to.
    ``negative``: an input below 0 was there; ``from_inf``: an input was infinite."""
    if backward:
        return _of_backward(op, dtype)
    if op == "exp":
        if "log" in after and {"div", "sum"} & set(after):
            return "the logarithm of a softmax by hand: cross_entropy(x, labels), or log_softmax(x); for log(exp(x).sum()) logsumexp(x)"
        if "sum" in after or "div" in after:
            return "a softmax by hand: softmax(x), log_softmax(x), or cross_entropy(x, labels), which subtract the largest value first"
        return f"exp(x - x.max()), or a bound, x.clamp(max=...); {AROUND}"
    if op in ("log", "log2", "log10"):
        if "sigmoid" in before:
            return "logsigmoid(x), or binary_cross_entropy_with_logits(x, labels), on the logits"
        if "softmax" in before or "div" in before:
            return "log_softmax(x), or cross_entropy(x, labels): a probability has become 0"
        return "x.clamp(min=...) before the logarithm, or log1p where x lies near 1: its input has reached 0" + (" or less" if negative else "")
    if op in ("softmax", "log_softmax") and from_inf:
        return ("a mask that leaves something in every row: a row of -inf alone has no softmax. -1e9 is -inf in float16, too; write "
                "torch.finfo(x.dtype).min")
    if op in ("sqrt", "rsqrt", "pow") and (negative or op == "rsqrt"):
        variance = "sub" in before
        return "x.var(): a variance as a difference of squares has become negative" if variance else "x.clamp(min=eps) before the root"
    if op in ("div", "reciprocal", "remainder"):
        if "norm" in before:
            return "normalize(x, dim=...), which bounds the norm from below: a row is 0"
        return "an epsilon in the divisor, x / (y + eps), or where(y == 0, ...): it has reached 0"
    if op == "cast":
        return (f"a value that {dtype} can hold: torch.finfo(torch.{dtype}).min in place of -1e9, or bfloat16, whose range is float32's")
    if op in SUMS and dtype == "float16":
        return f"the sum in float32: x.{op}(dtype=torch.float32), or under autocast, which does so"
    if op in PRODUCTS:
        return f"bfloat16, whose range is float32's, or smaller inputs (a normalisation before it, a smaller initialisation); {AROUND}"
    return f"bfloat16 where float16 is too narrow; {AROUND}"


def _of_backward(op: str, dtype: str) -> str:
    if op in ("sqrt", "norm", "pow", "rsqrt"):
        return "an epsilon under the root: the gradient of sqrt at 0 is infinite; torch.linalg.vector_norm has the gradient 0 there"
    if op in ("log", "div", "reciprocal"):
        return "x.clamp(min=eps): the gradient of 1 / x or log(x) at 0 is infinite"
    if op == "where":
        return "the branch that is not chosen computed on harmless values, too: its gradient is 0 times infinity"
    if dtype == "float16":
        return "a lower loss scale, which the GradScaler finds by itself; at a scale of 1: bfloat16"
    return "gradient clipping, or a lower learning rate"
