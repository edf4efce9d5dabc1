"""Advises what to write in place of an operator that overflowed. The advice depends on the operator, and on the operators before and
after it."""

from __future__ import annotations

from typing import List, NamedTuple, Tuple

PRODUCTS = {"mm", "bmm", "matmul", "linear", "addmm", "baddbmm", "convolution", "convolution_weight", "mv", "dot", "einsum",
            "scaled_dot_product_attention"}
SUMS = {"sum", "mean", "cumsum", "norm", "prod", "var", "std"}
ARCS = {"acos", "asin", "acosh", "atanh"}
AROUND = "or compute on x.float() inside `with autocast(enabled=False):`"
SMALLER = "make the inputs smaller, by a normalisation layer or smaller initial weights"


class Trouble(NamedTuple):
    """What an operator did. ``op``: that of the forward pass, where its own formula ran backward."""

    op: str
    dtype: str  # of the result
    limit: float  # the largest value of the dtype
    before: List[str]  # the operators that made its inputs, nearest first
    after: List[str]  # those that inf or nan then spread to
    backward: bool
    own: bool  # within the backward of a Function that the script defines: an operator like those of the forward pass
    ranges: List[Tuple[float, float]]  # lowest and highest value of each input
    what: str  # 'inf' or 'nan'
    from_inf: bool  # an input was infinite
    exponent: float  # the smallest, of a power; else 1

    @property
    def low(self) -> float:
        return min((low for low, _ in self.ranges), default=0.0)

    @property
    def high(self) -> float:
        return max((high for _, high in self.ranges), default=0.0)


def replacement(t: Trouble) -> str:
    """What to write instead."""
    if t.backward and not t.own:
        return _of_backward(t)
    if t.from_inf:
        return _of_infinite(t)
    return _of_point(t) or (_of_backward(t) if t.backward else _of_overflow(t))


def _of_infinite(t: Trouble) -> str:
    if t.op in ("softmax", "log_softmax"):
        return ("leave an unmasked value in every row: the softmax of a row of -inf is nan. Mask with torch.finfo(x.dtype).min, because -1e9 "
                "is -inf in float16")
    return ("an input is infinite already, and inf - inf, inf / inf and 0 * inf are nan: leave the infinite values out before it, by "
            "where(x.isinf(), 0, x), or find out why they are there")


def _of_point(t: Trouble) -> str:
    """Of operators that are infinite, or undefined, at some values; '' of others."""
    op = t.op
    if op == "exp":
        return _of_exp(t)
    if op in ("log", "log2", "log10", "log1p"):
        return _of_log(t)
    if op in ARCS:
        return _of_arc(op)
    if op == "pow" and t.what == "inf" and t.exponent < 0 and t.ranges and t.ranges[0][0] <= 0 <= t.ranges[0][1]:
        return "a negative power of 0 is infinite: use x.clamp(min=eps) before it, or add an epsilon to x"
    if op == "rsqrt" or (op in ("sqrt", "pow") and t.what == "nan"):
        return "rounding made a difference of squares negative: use x.var()" if "sub" in t.before else "use x.clamp(min=eps) before the root"
    if op in ("div", "reciprocal", "remainder"):
        return _of_quotient(t)
    if t.what == "nan" and op in ("std", "var"):
        return f"the {op} of one value is 0 / 0: give it at least two values, or use x.{op}(correction=0)"
    if t.what == "nan" and op == "mean":
        return "the mean of nothing is 0 / 0: leave an empty selection out of the loss, or make sure that it has at least one value"
    if t.what == "nan" and op in ("nll_loss", "cross_entropy"):
        return ("no label counts, because all of them are ignore_index or have weight 0, and the mean of nothing is 0 / 0: leave such a batch out, "
                "or make sure that it has at least one label")
    if op == "ctc_loss":
        return ("a target fits no path through its input, which is too short for it: each label needs a frame, and a repeated label one more; use "
                "zero_infinity=True, or leave such samples out")
    return ""


def _of_exp(t: Trouble) -> str:
    if "log" in t.after and {"div", "sum"} & set(t.after):
        return "this is the logarithm of a softmax: use cross_entropy(x, labels) or log_softmax(x); for log(exp(x).sum()) use logsumexp(x)"
    if "sum" in t.after or "div" in t.after:
        return "this is a softmax: use softmax(x), log_softmax(x) or cross_entropy(x, labels), which subtract the largest value first"
    return "use exp(x - x.max()), or limit x by x.clamp(max=...)" + (f", {AROUND}" if t.dtype == "float16" else "")


def _of_log(t: Trouble) -> str:
    if "sigmoid" in t.before:
        return "apply logsigmoid(x) or binary_cross_entropy_with_logits(x, labels) to the logits"
    if "softmax" in t.before or ("div" in t.before and "exp" in t.before):
        return "a probability is 0: use log_softmax(x), or cross_entropy(x, labels)"
    least = -1 if t.op == "log1p" else 0
    more = ", or add an epsilon to it" if t.low >= least else ""
    return f"the input contains {f'values below {least}' if t.low < least else least}: use x.clamp(min=...) before the logarithm{more}"


def _of_arc(op: str) -> str:
    if op == "acosh":
        return "acosh is defined from 1 on: use x.clamp(min=1) before it, and min=1 + eps where its gradient is needed"
    ends = "has its values from -1 to 1, which rounding may pass" if op in ("acos", "asin") else "is infinite at -1 and 1"
    return f"the input of {op} {ends}: use x.clamp(-1 + eps, 1 - eps) before it; the gradient at -1 and 1 is infinite, too"


def _of_quotient(t: Trouble) -> str:
    if "norm" in t.before:
        return "a row is 0, so its norm is 0: use normalize(x, dim=...), which never divides by less than eps"
    low, high = t.ranges[-1] if t.ranges else (0.0, 0.0)
    if t.dtype == "float16" and t.op == "div" and (low > 0 or high < 0):
        return f"the quotient is too large for float16, because the divisor is too small: divide in float32, x.float() / y, {AROUND}"
    return "the divisor is 0 or too small: add an epsilon, x / (y + eps), or replace the zeros by where(y == 0, 1, y)"


def _of_overflow(t: Trouble) -> str:
    if t.op in ("mul", "add", "sub") and len(t.ranges) > 1 and max(-t.low, t.high) > t.limit:
        half = "; for a mask use masked_fill, or torch.finfo(x.dtype).min / 2 in place of -1e9" if t.dtype == "float16" else ""
        return f"one input has values that {t.dtype} cannot hold: limit them by clamp(max=...), {AROUND}{half}"
    if t.op == "cast":
        wider = ", torch.finfo(torch.float16).min in place of -1e9, or bfloat16, which has float32's range" if t.dtype == "float16" else ""
        scaled = ", or scale it in float32 before the cast: (x.float() / scale).half()" if t.op == "cast" and t.dtype == "float16" else ""
        return f"use a value that {t.dtype} can hold{wider}{scaled}"
    if t.dtype != "float16":
        return f"{SMALLER}; or check whether the training diverges"
    if t.op in SUMS:
        return f"add in float32: x.{t.op}(dtype=torch.float32), or open an autocast region, which does so"
    if t.op in PRODUCTS:
        return f"use bfloat16, which has float32's range; or {SMALLER}; {AROUND}"
    return f"use bfloat16, which has float32's range, {AROUND}"


def lost_epsilon(lost: float, dtype: str) -> str:
    """``lost``: a number that was to keep a divisor, or the input of a logarithm or root, from 0."""
    least = {"float16": 2.0**-24, "float32": 2.0**-149}[dtype]
    return (f"{lost:g} is 0 in {dtype}, whose smallest number is {least:.2g}, so it keeps nothing from 0: "
            + ("use an epsilon of 1e-4 or more, or compute on x.float()" if dtype == "float16" else "use a larger epsilon, such as 1e-12"))


def _of_backward(t: Trouble) -> str:
    op = t.op
    if op in ("sqrt", "norm", "pow", "rsqrt"):
        if op == "pow" and t.what == "inf" and t.dtype == "float16" and t.low > 0:
            return f"the gradient of the power is too large: use bfloat16, which has float32's range, {AROUND}"
        return "the gradient of sqrt at 0 is infinite: add an epsilon under the root, or use torch.linalg.vector_norm, whose gradient at 0 is 0"
    if op in ("log", "div", "reciprocal"):
        return "the gradient of 1 / x and log(x) at 0 is infinite: use x.clamp(min=eps)"
    if op in ARCS:
        return _of_arc(op)
    if op == "where":
        return "where() also differentiates the branch that it does not choose, and 0 times infinity is nan: give that branch finite values"
    if t.dtype == "float16":
        return "use a lower loss scale, which a GradScaler finds by itself; if the scale is 1 already, use bfloat16"
    return "clip the gradients, or lower the learning rate"
