"""Advises what to write in place of an operator that overflowed. The advice depends on the operator, and on the operators before and
after it."""

from __future__ import annotations

from typing import List

PRODUCTS = {"mm", "bmm", "matmul", "linear", "addmm", "baddbmm", "convolution", "convolution_weight", "mv", "dot", "einsum",
            "scaled_dot_product_attention"}
SUMS = {"sum", "mean", "cumsum", "norm", "prod", "var", "std"}
AROUND = "or compute on x.float() inside `with autocast(enabled=False):`"
SMALLER = "make the inputs smaller, by a normalisation layer or smaller initial weights"


def replacement(op: str, dtype: str, before: List[str], after: List[str], backward: bool, low: float, high: float, what: str,
                from_inf: bool) -> str:
    """``dtype``: of the result; ``before``: the operators that made its inputs, nearest first; ``after``: those that inf or nan then spread to;
    ``low``, ``high``: the range of its inputs; ``what``: 'inf' or 'nan'; ``from_inf``: an input was infinite."""
    if backward:
        return _of_backward(op, dtype)
    if op == "exp":
        if "log" in after and {"div", "sum"} & set(after):
            return "this is the logarithm of a softmax: use cross_entropy(x, labels) or log_softmax(x); for log(exp(x).sum()) use logsumexp(x)"
        if "sum" in after or "div" in after:
            return "this is a softmax: use softmax(x), log_softmax(x) or cross_entropy(x, labels), which subtract the largest value first"
        return "use exp(x - x.max()), or limit x by x.clamp(max=...)" + (f", {AROUND}" if dtype == "float16" else "")
    if op in ("log", "log2", "log10"):
        if "sigmoid" in before:
            return "apply logsigmoid(x) or binary_cross_entropy_with_logits(x, labels) to the logits"
        if "softmax" in before or "div" in before:
            return "a probability is 0: use log_softmax(x), or cross_entropy(x, labels)"
        return f"the input contains {'values below 0' if low < 0 else '0'}: use x.clamp(min=...) before the logarithm"
    if op in ("softmax", "log_softmax") and from_inf:
        return ("leave an unmasked value in every row: the softmax of a row of -inf is nan. Mask with torch.finfo(x.dtype).min, because -1e9 "
                "is -inf in float16")
    if from_inf:
        return ("an input is infinite already, and inf - inf, inf / inf and 0 * inf are nan: leave the infinite values out before it, by "
                "where(x.isinf(), 0, x), or find out why they are there")
    if op == "pow" and what == "inf" and -1 <= low <= high <= 1:
        return "a negative power of 0 is infinite: use x.clamp(min=eps) before it"
    if op == "rsqrt" or (op in ("sqrt", "pow") and what == "nan"):
        variance = "sub" in before
        return "rounding made a difference of squares negative: use x.var()" if variance else "use x.clamp(min=eps) before the root"
    if op in ("div", "reciprocal", "remainder"):
        if "norm" in before:
            return "a row is 0, so its norm is 0: use normalize(x, dim=...), which never divides by less than eps"
        return "the divisor is 0 or too small: add an epsilon, x / (y + eps), or replace the zeros by where(y == 0, 1, y)"
    if op == "cast":
        wider = ", torch.finfo(torch.float16).min in place of -1e9, or bfloat16, which has float32's range" if dtype == "float16" else ""
        return f"use a value that {dtype} can hold{wider}"
    if dtype != "float16":
        return f"{SMALLER}; or check whether the training diverges"
    if op in SUMS:
        return f"add in float32: x.{op}(dtype=torch.float32), or open an autocast region, which does so"
    if op in PRODUCTS:
        return f"use bfloat16, which has float32's range; or {SMALLER}; {AROUND}"
    return f"use bfloat16, which has float32's range, {AROUND}"


def lost_epsilon(lost: float, dtype: str) -> str:
    """``lost``: a number that was to keep a divisor, or the input of a logarithm or root, from 0."""
    least = {"float16": 2.0**-24, "float32": 2.0**-149}[dtype]
    return (f"{lost:g} is 0 in {dtype}, whose smallest number is {least:.2g}, so it keeps nothing from 0: "
            + ("use an epsilon of 1e-4 or more, or compute on x.float()" if dtype == "float16" else "use a larger epsilon, such as 1e-12"))


def _of_backward(op: str, dtype: str) -> str:
    if op in ("sqrt", "norm", "pow", "rsqrt"):
        return "the gradient of sqrt at 0 is infinite: add an epsilon under the root, or use torch.linalg.vector_norm, whose gradient at 0 is 0"
    if op in ("log", "div", "reciprocal"):
        return "the gradient of 1 / x and log(x) at 0 is infinite: use x.clamp(min=eps)"
    if op == "where":
        return "where() also differentiates the branch that it does not choose, and 0 times infinity is nan: give that branch finite values"
    if dtype == "float16":
        return "use a lower loss scale, which a GradScaler finds by itself; if the scale is 1 already, use bfloat16"
    return "clip the gradients, or lower the learning rate"
