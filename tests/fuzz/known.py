"""Differences that stay, each with its reason. A difference that none of these describes is an error."""

from __future__ import annotations

import math
import re
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

import numpy as np

from .running import BACKWARD, EPS, GEOMETRY, Difference, Seen, groups


class Known(NamedTuple):
    reason: str
    fits: Callable[[Difference], bool]


def line(pattern: str, *kinds: str) -> Callable[[Difference], bool]:
    """Where the line is like this."""
    return lambda d: (not kinds or d.kind in kinds) and re.search(pattern, d.step.source) is not None


def only_torch_raises(pattern: str) -> Callable[[Difference], bool]:
    return lambda d: d.kind == "exception" and d.ampc is None and re.search(pattern, d.message) is not None


def only_ampc_raises(pattern: str) -> Callable[[Difference], bool]:
    return lambda d: d.kind == "exception" and d.torch is None and re.search(pattern, d.message) is not None


def both_raise(torch: str, ampc: str, pattern: str) -> Callable[[Difference], bool]:
    return lambda d: d.kind == "exception" and (d.torch, d.ampc) == (torch, ampc) and re.search(pattern, d.message) is not None


def pairs(d: Difference, room: float = 2**-5) -> List[Tuple[float, float]]:
    """Of torch's and ampc's values, those that differ by more than that, relatively: without it, in more than the first digits."""
    def flat(values: Any) -> List[float]:
        return [v for row in values for v in flat(row)] if isinstance(values, list) else [float(values)]
    if d.kind != "value":
        return []
    both = zip(flat(d.torch), flat(d.ampc))
    return [(t, a) for t, a in both if not (t == a or t != t and a != a or abs(t - a) <= room * max(abs(t), abs(a)))]


def infinite(d: Difference) -> bool:
    """Where one of the two is infinite or nan, and nowhere else."""
    found = pairs(d)
    return bool(found) and not any(math.isfinite(t) and math.isfinite(a) for t, a in found)


def is_gradient(d: Difference) -> bool:
    return d.kind == "value" and (".grad" in d.name or BACKWARD.search(d.step.source) is not None)


def tiny(d: Difference) -> bool:
    """Where one of the two is next to nothing, or the inverse of that, and nowhere else."""
    found = pairs(d)
    return bool(found) and all(min(abs(t), abs(a)) < 1e-20 or not (max(abs(t), abs(a)) < 1e20) for t, a in found)


def extreme(d: Difference) -> bool:
    """Where one of the two is infinite, nan or next to nothing, and nowhere else."""
    found = pairs(d)
    return bool(found) and all(not (math.isfinite(t) and math.isfinite(a)) or min(abs(t), abs(a)) < 1e-20 or max(abs(t), abs(a)) > 1e20 for t, a in found)


def making(d: Difference) -> str:
    """The lines that have made or written what differs, and what went into it. Of a gradient: all lines."""
    if is_gradient(d) or d.name in ("", "log"):
        return str([str(s) for s in d.program.steps[:d.at + 1]])
    names, lines = {re.split(r"[.\[]", d.name)[0]}, []
    for step in reversed(d.program.steps[:d.at + 1]):
        named = set(re.findall(r"\bv\d+", step.source))
        if named & names:
            names |= named
            lines.append(str(step))
    return str(lines)


def near(d: Difference, room: float) -> bool:
    """Where the finite ones of the two differ by no more than that, relatively or absolutely."""
    return all(abs(t - a) <= room * max(1.0, abs(t)) for t, a in pairs(d) if math.isfinite(t) and math.isfinite(a))


def same_count(d: Difference) -> bool:
    """Where values stand in neighbouring bins of a histogram, and none is missing."""
    return isinstance(d.torch, list) and math.isclose(sum(d.torch), sum(d.ampc)) and sum(abs(t - a) for t, a in zip(d.torch, d.ampc)) <= 4


def on_gpu() -> bool:
    import ampc
    return ampc.get_default_device().type == "cuda"


def widened_by_autocast(d: Difference) -> bool:
    return d.kind == "dtype" and "autocast" in d.step.context and "float" in d.torch and "float" in d.ampc


def overwritten_whole(d: Difference) -> bool:
    return re.search(r"(fill|zero|copy|constant|set|eq|ne|lt|le|gt|ge|logical_\w+)_\(|\] = ", str(d.program.steps)) is not None


def tensors(names: Iterable[str], seen: Dict[str, Any]) -> Dict[str, Seen]:
    """Of these variables, those that are tensors, and the tensors in those that are lists."""
    wanted = set(names)
    return {n: s for n, s in seen.items() if isinstance(s, Seen) and n.split("[")[0] in wanted and not n.endswith(".grad")}


def named(source: str) -> List[str]:
    return re.findall(r"\bv\d+", source)


def operands(d: Difference, pattern: str) -> List[Tuple[str, Seen]]:
    """The tensors that go into lines like this."""
    return [found for i, s in enumerate(d.program.steps[:d.at + 1]) if i and re.search(pattern, s.source) for found in tensors(named(s.source), d.trace[i - 1]).items()]


def refused_backward(d: Difference) -> bool:
    """torch finds overwritten what it has saved for backward."""
    return only_torch_raises("modified by an inplace operation")(d)


def overwritten_later(d: Difference, pattern: str) -> bool:
    """Whether something that a line like this names was written after it, or is there no more."""
    def written(i: int, source: str) -> bool:
        then, now = tensors(named(source), d.trace[i]), d.trace[d.at]
        return any(n not in now or now[n].version != s.version for n, s in then.items())
    return any(re.search(pattern, s.source) and written(i, s.source) for i, s in enumerate(d.program.steps[:d.at]))


def shares_with_target(d: Difference) -> bool:
    """Whether a line before writes into memory that another of its operands lies in, too."""
    for i, s in enumerate(d.program.steps[:d.at]):
        target = re.match(r"(v\d+)\b.*?(\.\w+_\(| [-+*/]+= |\] = )(.*)", s.source)
        if i and target:
            places = groups({n: t for n, t in d.trace[i - 1].items() if isinstance(t, Seen)})
            roots = [{places[n][0] for n in tensors(names, d.trace[i - 1]) if n in places} for names in ([target.group(1)], named(target.group(3)))]
            if roots[0] & roots[1]:
                return True
    return False


def ill_conditioned(d: Difference) -> bool:
    """Whether a matrix that is inverted in the line is singular as far as its dtype tells."""
    def singular(s: Seen) -> bool:
        if len(s.shape) < 2 or 0 in s.shape or s.shape[-1] != s.shape[-2] or s.dtype not in EPS or not np.isfinite(s.values).all():
            return False
        return bool((np.linalg.cond(np.asarray(s.values, np.float64)) * EPS[s.dtype] > 2**-5).any())
    pattern = r"linalg\.(inv|solve)|inverse"
    return re.search(pattern, d.step.source) is not None and d.at > 0 and any(singular(s) for s in tensors(named(d.step.source), d.trace[d.at - 1]).values())


def neighbours(d: Difference, at: int, name: str) -> Dict[str, Seen]:
    """The tensors that lie in the memory of this one after a line."""
    now = {n: t for n, t in d.trace[at].items() if isinstance(t, Seen)}
    places = groups(now)
    return {n: now[n] for n in places if name in places and places[n][0] == places[name][0]}


def written_through_other_copy(d: Difference) -> bool:
    """Whether, in torch too, a tensor was written that lies in the same memory, or was copied with this one."""
    before, together = d.trace[d.at - 1], {**neighbours(d, d.at, d.name), **tensors([d.name.split("[")[0]], d.trace[d.at])}
    return any(n in before and t.version != before[n].version for n, t in together.items())


def nan_is_seen_as_bits(d: Difference) -> bool:
    """Whether a tensor of another dtype lies in the same memory and holds nan."""
    return d.kind == "value" and any(t.dtype != d.trace[d.at][d.name].dtype and np.isnan(t.values).any() for t in neighbours(d, d.at, d.name).values())


def view_of_what_changed(d: Difference) -> bool:
    """Whether requires_grad was set of something that lies in the same memory."""
    if d.kind != "requires_grad":
        return False
    changed = [m.group(1) for s in d.program.steps[:d.at + 1] for m in re.finditer(r"(v\d+)(?:\[\d+\])?\.requires_grad", s.source)]
    return any(n.split("[")[0] in changed for n in neighbours(d, d.at, d.name))


def marked_in_torch(d: Difference) -> bool:
    """Whether torch marks a tensor of integers or truth values as requiring gradients, which no backward can give it."""
    seen = d.trace[d.at].get(d.name)
    return d.kind in ("requires_grad", "leaf") and isinstance(seen, Seen) and seen.dtype not in EPS and d.ampc is (d.kind == "leaf")


def not_recorded(pattern: str, d: Difference) -> bool:
    """Where such a line ran without a gradient mode."""
    return any(re.search(pattern, s.source) and re.search(r"no_grad|set_grad_enabled\(False|inference_mode", s.context) for s in d.program.steps)


def written_view_of_leaf(d: Difference) -> bool:
    """The gradient of a leaf that is made of another variable as a view, where a view of it was written without a gradient mode."""
    leaf = d.name[:-len(".grad")]
    if d.kind not in ("value", "existence") or not d.name.endswith(".grad"):
        return False
    lines = str(d.program.steps)
    return re.search(rf"\b{leaf} = v\d+(\[|\.\w+)", lines) is not None and re.search(rf"\b{leaf}\.requires_grad", lines) is not None and not_recorded(r"^v\d+(\.\w+_\(| [-+*/]?= |\[.*\] [-+*/]?= )", d)


TURNED = re.compile(r"adjoint|\.m?[tTH]_?\b|transpose|permute|swapaxes|movedim")

# What torch refuses and ampc takes: nobody's program depends on the refusal.
TAKEN = [
    Known("numbers stand for tensors in every elementwise operator", only_torch_raises(r"must be Tensor, not")),
    Known("operands of mixed dtypes are promoted where torch asks for one dtype", only_torch_raises(
        r"expected (scalar type|dtype)|same dtype|same type|same scalar type|mixed dtype|to have the same|should have the same|Expected out t|result dtype|Boolean inputs not supported|Unsupported input type|expected .* dtype|"
        r"to be a floating|bool tensor is not supported|not supported for (Bool|bool)|floating.point|prioritize|must be .*type|doesn't match|must match|expected m1 and m2|Found dtype|dtypes match|dtypes must be|dtype to be equal|Autograd not support dtype|does not support bool|Subtraction, the|Boolean alpha|can't be cast|Type promoting not supported|Integral inputs|Could not set tensor of type")),
    Known("operators that torch has no derivative for have the gradient 0 that they have", only_torch_raises(r"derivative for .* is not implemented|not implemented for|does not support automatic differentiation")),
    Known("memory that operands share with the target is read before it is written", only_torch_raises(r"refer to a single memory location|unsupported operation")),
    Known("what a derivative does not need may be overwritten; its numbers are those of what was saved",
          lambda d: d.outlived or refused_backward(d) and re.search("in_thread|saved_tensors_hooks|checkpoint|inplace=True", str(d.program.steps)) is not None),  # where `keeping` does not reach
    Known("an operand that shares the target's memory is saved as it was", lambda d: refused_backward(d) and shares_with_target(d)),
    Known("truth values may be written into a view made in inference mode", lambda d: only_torch_raises("created in inference mode and is being modified")(d) and re.search(r"\.(eq|ne|lt|le|gt|ge|logical_\w+)_\(", d.step.source) is not None),
    Known("bool tensors have an order", only_torch_raises(r"does not support bool|support bool")),
    Known("tensors of inference mode may come to require gradients or another geometry", only_torch_raises(r"(on|to) inference tensor")),
    Known("a checkpoint whose argument requires gradients no more says so", lambda d: only_ampc_raises("the first run saved")(d) and "requires_grad" in str(d.program.steps)),
    Known("a view of what became a leaf that requires gradients is not written", lambda d: only_ampc_raises("a view of a leaf that requires gradients cannot be modified")(d) and "requires_grad" in str(d.program.steps)),
    Known("attention asks for as many rows of the key as of the value", only_ampc_raises("as many rows in key as in value")),
    Known("results of pointwise operators lie by rows; torch's as their operand does", lambda d: only_ampc_raises(r"cannot be seen as")(d)
          or (only_ampc_raises(r"view: the last dimension does not divide")(d) or only_torch_raises(r"must be divisible by \d+ to view")(d)) and (TURNED.search(str(d.program.steps)) is not None or "as_strided" in str(d.program.steps))
          or d.kind == "aliasing" and TURNED.search(str(d.program.steps)) is not None and re.search(r"split|chunk|unbind|\[", str(d.program.steps)) is not None),
    Known("views of split that no longer have a history may be read", only_torch_raises(r"was created inside a custom Function|such functions do not allow|multiple vie|a function tha|of a function")),
    Known("what is not between 0 and 1 has the loss that the formula gives", only_torch_raises(r"should be between 0 and 1")),
    Known("layouts are not looked at where elements are counted", only_torch_raises(r"view size is not compatible")),
    Known("cross broadcasts", only_torch_raises(r"inputs must have the same number of dimensions|must have length 3")),
    Known("numbers that a dtype cannot hold wrap", only_torch_raises(r"without overflow|Integer division with addcdiv|Expected `weight` to be|Class values must be non-negative")),
    Known("set_ takes memory over, as assigning data does", lambda d: d.ampc is None and "set_(" in d.step.source and "leaf Variable" in d.message),
    Known("a leaf whose data was replaced in inference mode is still a leaf that requires gradients", lambda d: only_ampc_raises("a leaf that requires gradients cannot be modified in place")(d) and ".data = " in str(d.program.steps) and "inference" in str(d.program.steps)),
    Known("whether a view can be written is looked at before the index of it", lambda d: both_raise("IndexError", "RuntimeError", "writing into a view of a tensor that is not contiguous")(d)),
    Known("whether a view can be used is looked at before the dimension that is asked for", lambda d: both_raise("IndexError", "RuntimeError", "a view returned by an autograd Function cannot be used")(d)),
    Known("shapes are looked at before the mode in which a tensor was made", lambda d: both_raise("RuntimeError", "IndexError", "Inference tensors cannot be saved")(d)),
    Known("a tensor with a history does not come to have other memory, which would not be its value", only_ampc_raises("other memory would not be its value")),
    Known("an assertion of torch's own fails", only_torch_raises("INTERNAL ASSERT|ZeroTensors are immutable|on a tensor with unallocated storage")),
    Known("nansum and nanmean need where nan was, not the values", lambda d: refused_backward(d) and overwritten_later(d, "nansum|nanmean")),
    Known("a view of what became a leaf is not written where it is one of many", lambda d: only_ampc_raises("unbind, split and chunk cannot be modified")(d) and "requires_grad_(" in str(d.program.steps)),
    Known("an optimizer asks for gradients of the parameters' shapes", lambda d: only_ampc_raises(r"parameter \d+ has shape .* and its gradient")(d) and "squeeze_(" in str(d.program.steps)),
    Known("set_ takes memory over; what a derivative has saved is of the new shape", lambda d: only_ampc_raises("must have 2 dimensions")(d) and "set_(" in str(d.program.steps) and BACKWARD.search(d.step.source) is not None),
    Known("a target of soft_margin_loss has a gradient", only_torch_raises("soft_margin_loss' is not differentiable")),
    Known("multi_margin_loss asks for as many classes as rows, and gives nan for none; torch reads what was never written", lambda d: (only_ampc_raises("multi_margin_loss: scores")(d) or d.empty and d.kind == "value") and "multi_margin" in d.step.source),
    Known("torch's polygamma and Bessel functions have few digits, and miss their poles", lambda d: d.kind in ("value", "result") and re.search("polygamma|digamma|bessel|lgamma|[.]i[01]", making(d)) is not None and (near(d, 1e-4) or "polygamma" in making(d))),
    Known("i0 of infinity is infinite; torch's is nan", lambda d: d.kind == "value" and "i0" in str(d.program.steps) and all(t != t and math.isinf(a) for t, a in pairs(d))),
    Known("an infinity times the slope of sinc, which both libraries compute as a difference", lambda d: is_gradient(d) and "sinc" in str(d.program.steps) and (infinite(d) or "1e+30" in str(d.program.steps) and any(not math.isfinite(v) for p in pairs(d) for v in p))),
    Known("torch's igammac has one digit next to 0, nine where both operands are alike, and a number for nan",
          lambda d: d.kind == "value" and "igamma" in making(d) and (tiny(d) or near(d, 1e-8) or all(math.isnan(a) or t == a or abs(t - a) < 1e-6 for t, a in pairs(d)))),
    Known("nan stays nan in multi_margin_loss and attention", lambda d: d.kind == "value" and infinite(d) and re.search("multi_margin|scaled_dot", making(d)) is not None and "nan" in str(d.ampc)),
    Known("gradients of a tensor and of its view do not share memory", lambda d: d.kind == "aliasing" and "autograd.grad(" in str(d.program.steps) and "set_(" in d.step.source),
    Known("the integral over no interval is 0, and so is its gradient", lambda d: is_gradient(d) and infinite(d) and "trapezoid" in making(d)),
    Known("a 0-d float64 is looked for as it is", lambda d: d.kind == "value" and re.search(r"bucketize|searchsorted", d.step.source) is not None and "float64" in making(d)),
    Known("copies begin with version 0", lambda d: d.kind == "version" and "deepcopy" in making(d) and d.step.source.startswith("del ")),
    Known("torch's inner gives a view of a result, whose history is made again", lambda d: d.kind == "result" and d.torch == ("NoneType", None) and ".inner(" in making(d) and re.search(r"\.\w+_\(", making(d)) is not None),
    Known("a view of what was a leaf follows what that has become", lambda d: only_torch_raises("view of a leaf Variable")(d) and re.search(r"detach_|requires_grad", str(d.program.steps)) is not None),
    Known("gradients that are not asked for are not made, and need nothing", lambda d: only_torch_raises("modified by an inplace operation")(d) and (re.search(r"autograd\.grad|inputs=", d.step.source) is not None or "Unused.apply" in str(d.program.steps))),
    Known("bytes are seen along any layout of one place", only_torch_raises(r"must be 1 to view")),
    Known("scatter_reduce of a 0-d tensor flattens", only_torch_raises(r"same number of dimensions as src")),
    Known("requires_grad = True says what already is", only_torch_raises("only change requires_grad flags")),
    Known("indices that were overwritten are not looked at", only_torch_raises(r"index -?\d+ is out of bounds|Index tensor must have the same number of dimensions as self")),
    Known("reentrant checkpoints take inputs=, too", only_torch_raises("use_reentrant=True")),
    Known("leaves of inference mode take part as others do", only_torch_raises(r"leaf variable has been moved into the graph interior|do not track version counter|element \d of tensors does not require|don't support automatic")),
    Known("hooks of a leaf that requires gradients no more are not called", lambda d: d.kind == "exception" and d.torch == "KeyError" and d.ampc is None and re.search(r"requires_grad_\(False|requires_grad = False", str(d.program.steps)) is not None),
    Known("a leaf's own memory, written through detach: what is saved is kept as it was", lambda d: only_torch_raises("modified by an inplace operation")(d) and re.search(r"(v\d+) = (v\d+)\.detach\(\).*\1\.\w+_\(\2\b", str(d.program.steps)) is not None),
    Known("hooks of what was overwritten by truth values are not called", lambda d: d.kind == "exception" and d.torch == "KeyError" and d.ampc is None and overwritten_whole(d)),
    Known("a hook that gives another shape is refused where it is called", lambda d: only_torch_raises(r"has changed the size")(d) and (d.empty or overwritten_whole(d) or re.search(r"detach_|requires_grad_\(False|v\d+, v\d+ = ", str(d.program.steps)) is not None)),
    Known("a checkpoint under inference_mode saves as it did", only_torch_raises(r"different number of tensors was saved")),
    Known("torch gives the src of scatter_add and scatter_reduce a gradient of the index's shape", only_torch_raises(r"Scatter(Reduce|Add)Backward")),
    Known("values picked by their places need these alone", lambda d: refused_backward(d) and overwritten_later(d, r"aminmax|(scatter|index)_reduce|max_pool|pad\(|clamp|dist|median|\.(max|min|take)\(|kthvalue|topk|sort")),
    Known("what was overwritten is not gone back through", lambda d: only_torch_raises("returned an invalid gradient")(d) and overwritten_whole(d)),
    Known("hooks of results that backward does not reach are not called", lambda d: d.kind == "exception" and d.torch == "KeyError" and d.ampc is None and re.search(r"v\d+, \*?v\d+ = |apply\(|unbind|split|chunk", str(d.program.steps)) is not None),
    Known("a leaf that has another shape by now gets the gradient that it takes", lambda d: (only_torch_raises("returned an invalid gradient|invalid gradient at index|setStorage")(d) or d.kind == "shape" and (d.name.endswith(".grad") or "autograd.grad" in d.step.source)) and re.search(r"squeeze_|\.data = |set_\(|t_\(|swapaxes_|transpose_|out=", str(d.program.steps)) is not None),
    Known("set_ takes memory over, and leaves the history as it was", lambda d: only_torch_raises("appears to not have been used")(d) and "set_(" in str(d.program.steps)),
    Known("set_ takes memory over, of a Function's view and of inference mode's, too", lambda d: only_torch_raises("is a view and|A view was created in inference mode")(d) and "set_(" in d.step.source),
    Known("a leaf's new geometry is no write", lambda d: only_torch_raises("modified by an inplace operation")(d) and re.search(r"squeeze_|t_\(|swapaxes_|transpose_", str(d.program.steps)) is not None),
    Known("indices whose data was replaced are not looked at: what was saved is theirs", lambda d: only_torch_raises(r"Expected dtype int32/int64 for index")(d) and ".data = " in str(d.program.steps)),
    Known("index_copy of nothing into a 0-d tensor has a gradient", lambda d: only_torch_raises("Index to scalar")(d) and BACKWARD.search(d.step.source) is not None),
    Known("what was saved keeps its history when its tensor is detached in place", only_torch_raises("saved tensor that has been detached in-place")),
    Known("special.ndtr saves its operand; torch's saves what it makes of it", only_ampc_raises(r"backward of special\.ndtr needs a tensor .* modified in place")),
    Known("a graph that saved nothing can be gone through again", only_torch_raises(r"backward through the graph a second time")),
    Known("detach_ works on views", only_torch_raises(r"Can't detach views in-place")),
    Known("pooling takes batches of size 0", only_torch_raises(r"Expected \dD")),
    Known("what is expanded inside a function's result is no view", only_torch_raises(r"A view was created in no_grad mode")),
    Known("a tensor of inference mode may be saved for backward: nothing can write to it", only_torch_raises(r"Inference tensors cannot be saved for backward")),
    Known("a view of a gradient that was made without a history may be written", lambda d: only_torch_raises("a view of a view which was created in no_grad mode")(d) and "autograd.grad" in making(d)),
    Known("numbers that are divided by are read before they are written", lambda d: only_torch_raises("ZeroDivisionError")(d) and re.search(r"(remainder|floor_divide|fmod)_\(|(//|%)=", d.step.source) is not None),
    Known("a result that is a view within its operator in torch (einsum, pooling, gradients) is what was given, after a write and a view's new geometry, too",
          lambda d: (only_torch_raises("not have been used in the graph")(d) or d.kind == "result" and d.torch == ("NoneType", None)) and re.search(r"einsum|pool1d|autograd\.grad", making(d)) is not None and re.search(r"_\(", making(d)) is not None),
    Known("a leaf whose data was replaced is still the leaf", lambda d: only_torch_raises("not have been used in the graph")(d) and re.search(r"\.data = |requires_grad_", str(d.program.steps)) is not None),
    Known("as_strided sees the storage that there is, of a result that is a part of another, too", only_torch_raises("out of bounds for storage")),
    Known("a rounded quotient has the gradient 0", lambda d: (only_torch_raises("not have been used in the graph")(d) or d.kind in ("result", "existence")) and re.search("floor_divide|//", str(d.program.steps)) is not None),
    Known("a reentrant checkpoint needs no gradient mode", only_torch_raises(r"this checkpoint\(\) is not necessary")),
    Known("integers divided by 0 are no error on a GPU, as on torch's", lambda d: only_torch_raises("ZeroDivisionError")(d) and on_gpu()),
    Known("the norm of nothing is 0", only_torch_raises(r"cannot compute the .* norm on an empty tensor")),
]

# What ampc refuses and torch takes.
REFUSED = [
    Known("sums of truth values need an integer target", only_ampc_raises(r"the target is bool and cannot hold a result")),
    Known("quantile is of float32 and float64, under autocast too", only_ampc_raises(r"quantile: expected")),
    Known("number / x keeps x for backward, where torch keeps the quotient", only_ampc_raises(r"backward of div needs")),
    Known("views end where the storage of a result ends", only_ampc_raises(r"as_strided: the view ends")),
    Known("the bias of linear is a vector", only_ampc_raises(r"linear: `bias` must")),
    Known("tensordot does not broadcast", only_ampc_raises(r"tensordot: dimension")),
    Known("topk gives a 0-d tensor's one element", only_ampc_raises(r"must be 1 for a 0-d")),
    Known("integer division by 0 is an error for no elements, too", only_ampc_raises(r"integer division by zero")),
    Known("out= is written, never resized, which torch warns of as deprecated", lambda d: "out=" in d.step.source and re.search(r"the result has shape .* and the target", d.message) is not None),
    Known("out= and gradients do not go together, even where the operator has none", only_ampc_raises(r"`out` cannot be used where gradients")),
    Known("what several elements share is not written to", lambda d: d.kind == "exception" and "several elements of the target share memory" in d.message),
    Known("bytes seen as another dtype have no gradient", only_ampc_raises(r"bytes seen as another dtype")),
    Known("data of a tensor made in inference mode is as little written to as itself", only_ampc_raises(r"made under inference_mode cannot be modified")),
    Known("vectors of size 0 are joined along a dimension that they have", only_ampc_raises(r"cat: dimension")),
    Known("the target of a loss has its input's shape without classes", only_ampc_raises(r"`target` must have shape")),
    Known("a result is written where its dtype fits", only_ampc_raises(r"cannot hold a result of")),
    Known("backward through lerp twice needs retain_graph, for a number too", only_ampc_raises(r"backward through \w+ a second time|freed by an earlier")),
    Known("products are of floating point in layers", only_ampc_raises(r"needs floating point")),
    Known("kron, inner, tensordot and attention keep their operands as they are; torch's copies",
          lambda d: only_ampc_raises("backward of (mul|mm|fused_attention) needs")(d) and re.search("kron|inner|tensordot|attention", str(d.program.steps)) is not None),
    Known("autocast keeps operands as they are, not its copies", lambda d: only_ampc_raises(r"backward of \w+ needs")(d) and "autocast" in str(d.program.steps)),
    Known("a view along strides has a gradient where its tensor is contiguous", only_ampc_raises(r"as_strided: gradients need")),
    Known("a reentrant checkpoint has no second derivative; torch gives one without the first", only_ampc_raises(r"needs use_reentrant=False|need not be checkpointed")),
    Known("frexp's derivative needs its operand, torch's the exponent", lambda d: only_ampc_raises("backward of frexp")(d)),
    Known("checkpoints ask that their arguments stay what they were", only_ampc_raises(r"checkpoint: an argument was modified")),
    Known("factors of a matrix with infinities are those of each library's LAPACK", lambda d: d.kind == "value" and re.search(r"linalg\.(inv|det|slogdet|solve)|inverse|logdet", making(d)) is not None and infinite(d) and any(not np.isfinite(s.values).all() for _, s in operands(d, r"linalg\.(inv|det|slogdet|solve)|inverse|logdet"))),
    Known("ndtr saves its operand; torch's ndtr is made of operators that save a product of it", only_ampc_raises("backward of ndtr needs a tensor .* modified in place after it was saved")),
    Known("what a checkpoint saved stays what it was, in a second backward too", lambda d: only_ampc_raises("modified in place after it was saved")(d) and "checkpoint" in str(d.program.steps) and "retain_graph" in str(d.program.steps)),
    Known("requires_grad of a view of a leaf is turned off at the leaf", only_ampc_raises(r"can only be turned off on leaves")),
    Known("a view of a tensor whose memory was replaced is not written", only_ampc_raises(r"that is not contiguous cannot be recorded")),
    Known("what a composition gives cannot be detached in place while another view of it lives", only_ampc_raises(r"a view cannot be detached")),
    Known("a Function's view that was written is refused where it is read, also where no gradients are asked for", only_ampc_raises(r"a view returned by an autograd Function cannot be used after|inference_mode cannot be used where gradients are recorded")),
    Known("a gradient has the geometry that its tensor had when it was recorded", lambda d: (
        only_ampc_raises(r"reshape: shape .* does not hold|gave a gradient of shape|the gradient has shape|gradient of a leaf has shape|of one length|must have equally many dimensions")(d)
        or only_ampc_raises("shape|dimension")(d) and ".data = " in str(d.program.steps) and BACKWARD.search(d.step.source) is not None
        or d.kind == "exception" and d.ampc is not None and "returned an invalid gradient" in d.message) and re.search(r"\.(t|transpose|swapaxes|squeeze|unsqueeze|set)_\(|\.data = ", str(d.program.steps)) is not None),
    Known("as_strided beyond the tensor has no gradient", only_ampc_raises("the view reaches outside")),
    Known("integers take no number that they cannot hold", only_ampc_raises("cannot hold the number")),
    Known("tensors have at most 12 dimensions", only_ampc_raises("at most 12 dimensions")),
    Known("what nonzero gives is laid out by rows, torch's by columns", lambda d: (only_ampc_raises("view: the last dimension")(d) or d.kind in ("strides", "aliasing")) and re.search("nonzero|argwhere", making(d)) is not None),
    Known("what hooks have packed is looked at when it is needed, as what was saved without them is",
          lambda d: only_ampc_raises("that was modified in place after it was saved")(d) and re.search("saved_tensors_hooks|save_on_cpu", str(d.program.steps)) is not None),
    Known("a uint8 tensor has no numbers up to a negative bound", only_ampc_raises("has no numbers up to the `max`")),
    Known("out= of a view made under no_grad is refused as any write to it is", lambda d: only_ampc_raises("a view made under no_grad or inference_mode cannot be modified")(d) and "out=" in d.step.source),
    Known("a new geometry under no_grad or inference_mode is not in the history", lambda d: only_ampc_raises("`g` must have shape")(d) and re.search("inference_mode|no_grad", str(d.program.steps)) is not None
          and re.search(r"\.(t|transpose|swapaxes|squeeze|unsqueeze)_\(", str(d.program.steps)) is not None),
    Known("out= writes what backward needs, which torch does not look at where it was packed", lambda d: only_ampc_raises(r"that was modified in place after it was saved")(d) and "out=" in str(d.program.steps) and "save_on_cpu" in str(d.program.steps)),
    Known("linear takes a weight of two dimensions", only_ampc_raises(r"linear: `weight` must have 2")),
    Known("norms are of floating point", lambda d: d.kind == "exception" and "must be floating point, got" in d.message),
    Known("products are of one dtype", only_ampc_raises(r"must have the same dtype")),
    Known("of a matrix that is singular but for rounding, the last pivot is 0 in one library and tiny in the other", lambda d: (only_ampc_raises if d.torch is None else only_torch_raises)("singular")(d) and re.search(r"inv\(|solve", d.step.source) is not None),
    Known("src has the dimensions of x", only_ampc_raises(r"`src` must have (\d|the) dimensions|is larger than `src`")),
    Known("a leaf that requires gradients is not overwritten with truth values", lambda d: only_ampc_raises(r"(leaf that requires gradients|a result of unbind, split and chunk|a view \w+ \w+ [\w ]+) cannot be modified in place")(d) and re.search(r"logical_|eq_|ne_|lt_|le_|gt_|ge_", d.step.source) is not None),
]

# What both refuse.
RAISED = [
    Known("shapes that do not fit a loss or a norm are a RuntimeError", lambda d: d.kind == "exception" and (d.torch, d.ampc) in (("ValueError", "RuntimeError"),) and re.search("loss|entropy|norm", d.step.source) is not None),
    Known("an index out of range is an IndexError everywhere", both_raise("RuntimeError", "IndexError", r"is out of range|tuple index|cannot be broadcast|could not be broadcast|no elements to choose")),
    Known("the order of checks, where a line is wrong twice", lambda d: d.kind == "exception" and d.torch is not None and re.search(r"leaf Variable that requires grad|is a view and its base|single memory location|created in no_grad mode|made under inference_mode|returns multiple views|KeyError|TypeError|only change requires_grad|bool input", d.message + str(d.torch) + str(d.ampc)) is not None and d.ampc is not None),
    Known("a GPU tells of bad indices later, so another error of the line comes first", lambda d: d.kind == "exception" and d.torch == "IndexError" and d.ampc is not None and on_gpu()),
    Known("what an interrupted write has left counts as written", lambda d: d.kind in ("version", "log") and "torch: " in d.message and "ampc: " in d.message),
    Known("the rules of out= are looked at before the operands", lambda d: "out=" in d.step.source and d.kind == "exception" and d.torch is not None and d.ampc is not None),
    Known("torch resizes out= before it reads an operand in the same memory", lambda d: "out=" in d.step.source and (d.kind == "shape" or d.kind == "exception" and d.torch == "IndexError")),
    Known("an out= that must be resized may not share memory with an operand, whose values torch loses", lambda d: "out=" in d.step.source and d.kind == "exception" and d.torch is None and "shares the memory of an argument" in d.message),
    Known("a missing dimension is told as the shape that is needed, a RuntimeError", both_raise("IndexError", "RuntimeError", r"torch: (Dimension out of range|Dimension specified as -?\d|tuple index out of range).*ampc: .*(needs?|must (have|be)|expected|matrix|does not fit|cannot be multiplied)")),
]

# Results.
def overwritten(d: Difference) -> bool:
    """Where torch goes back with zeros through what was overwritten whole."""
    return overwritten_whole(d) and (
        d.kind == "existence" and d.name.endswith(".grad") and d.torch is True or only_ampc_raises("was not used in making")(d)
        or only_torch_raises(r"modified by an inplace operation")(d) and re.search(r"(fill|zero|copy|eq|ne|lt|le|gt|ge|logical_\w+)_\(|\] = ", str(d.program.steps)) is not None
        or d.kind == "log" and len(d.torch) > len(d.ampc) or d.kind == "result" and d.ampc == ("NoneType", None))


RESULTS = [
    Known("what was overwritten whole has no gradient; torch's is zeros", overwritten),
    Known("hooks of results that backward does not reach are not called; torch calls those of a row's other results with zeros",
          lambda d: d.kind == "log" and len(d.torch) > len(d.ampc) and re.search(r"v\d+, \*?v\d+ = |apply\(|unbind|split|chunk", str(d.program.steps)) is not None),
    Known("gradients are not kept in the memory of what backward was given", lambda d: d.kind == "aliasing" and (d.name.endswith(".grad") or ".grad" in f"{d.torch}{d.ampc}") or d.kind == "version" and re.search(r"\.backward\(v", d.step.source) is not None),
    Known("torch's derivative of atan2 negates unsigned integers, which wraps", lambda d: is_gradient(d) and "atan2" in making(d) and "uint8" in making(d)),
    Known("sum_to_size gives back what has the size", line("sum_to_size", "aliasing", "leaf", "dtype", "existence")),
    Known("0-d operands of a loss promote as tensors do", line(r"_loss\(|cosine_similarity", "dtype")),
    Known("norms for clipping are float32", line(r"clip_grad_norm_", "dtype")),
    Known("eps of 1e-12 is not 0 in 16 bits, nor is 1e-6 rounded", lambda d: d.kind == "value" and re.search("normalize|cosine|gaussian_nll", d.step.source) is not None and re.search(r"float16|half\(", making(d)) is not None),
    Known("unsigned bounds do not wrap", lambda d: d.kind == "value" and re.search("clamp|f?(max|min)", d.step.source) is not None and "uint8" in making(d)),
    Known("infinities in formulas of torch's derivatives", lambda d: is_gradient(d) and re.search("binary_cross_entropy|kl_div|huber|smooth_l1|copysign|softsign|norm|cdist|dist|var|std|prod|softmax|Adam", str(d.program.steps)) is not None and infinite(d)),
    Known("averages of infinities, by parts or by sums", lambda d: d.kind == "value" and "trapezoid" in d.step.source and infinite(d)),
    Known("a gradient that is constant requires none, nor does one made without create_graph", lambda d: d.kind == "requires_grad" and d.torch is True and ("create_graph" in str(d.program.steps) or d.name.endswith(".grad"))),
    Known("hooks see gradients as backward has them, not as they were given to it", lambda d: d.kind == "log" and "noted" in str(d.program.steps) and str(d.torch).replace("True", "False") == str(d.ampc).replace("True", "False")),
    Known("tensors without elements: what is looked at first, what takes part", lambda d: d.empty and d.kind in ("exception", "requires_grad", "existence", "result", "log", "version", "leaf", "strides")),
    Known("set_ and out= give memory whose version is its own", lambda d: d.kind == "version" and re.search(r"set_\(|out=|\.data = |m\d+\.(to|half|bfloat16|double|float)\(", str(d.program.steps)) is not None),
    Known("mixed dtypes of a loss promote", line(r"with_logits", "dtype")),
    Known("a number that the other operand's dtype cannot hold is compared as it is", lambda d: d.kind == "value" and "True" in f"{d.torch}{d.ampc}" and re.search("16|int", making(d)) is not None and re.search(r"==|!=|[<>]|\.(eq|ne|lt|le|gt|ge|isin)_?\(", d.step.source) is not None),
    Known("a hook on a view sees what the view was before it was written; torch's is lost", lambda d: (d.kind == "log" or is_gradient(d) or only_ampc_raises("hook")(d)) and re.search(r"register_hook\(.*(\.[a-z]\w*_\(|\[.*\] [-+*/]?= | [-+*/]= )", str(d.program.steps)) is not None),
    Known("what is kept of a Function's result that is its input ends where that is written; ours stays", lambda d: d.kind == "existence" and d.ampc is True and d.name.endswith(".grad") and re.search(r"apply|unbind|split|chunk", making(d)) is not None and "retain_grad" in str(d.program.steps)),
    Known("a score of nan is a weight of nan; torch's fused attention leaves it out", lambda d: d.kind == "value" and "scaled_dot_product_attention" in d.step.source and any(a != a for _, a in pairs(d)) and re.search(r"inf|log|/|div|1e.30|recip|pow|tan|sqrt|nan", making(d)) is not None),
    Known("torch adds 1e-12 in the second derivative of binary_cross_entropy", lambda d: is_gradient(d) and not pairs(d) and "binary_cross_entropy" in str(d.program.steps) and "create_graph" in str(d.program.steps)),
    Known("equal values: any of their places", lambda d: d.kind == "value" and re.search("kthvalue|median|mode", d.step.source) is not None and all(float(t).is_integer() and float(a).is_integer() for t, a in pairs(d))),
    Known("the gradient of a sum is a tensor of its own; torch's is one element expanded", lambda d: d.kind == "value" and re.search(r"_\(|[-+*/]= |\] = ", d.step.source) is not None and re.search(r"autograd\.grad|expand.*(pickle|deepcopy)|(pickle|deepcopy).*expand", making(d)) is not None),
    Known("a leaf that is a view stays a leaf when its base is written", lambda d: d.kind == "existence" and d.ampc is True and d.name.endswith(".grad") and "requires_grad" in making(d)),
    Known("the gradient of new data has the dtype of that", lambda d: d.kind == "dtype" and BACKWARD.search(d.step.source) is not None and ".data = " in str(d.program.steps)),
    Known("comparisons of unsigned integers with negative numbers are those of the numbers", lambda d: d.kind == "value" and "uint8" in making(d) and re.search(r"==|!=|[<>]|\.(eq|ne|lt|le|gt|ge)_?\(|clamp|maximum|minimum", d.step.source) is not None),
    Known("hardsigmoid's slope is 1/6 in float64, too", lambda d: d.kind == "value" and "hardsigmoid" in making(d) and "float64" in making(d) and not pairs(d)),
    Known("truth values replace the history of what they are written into", lambda d: is_gradient(d) and re.search(r"logical_\w+_\(", str(d.program.steps)) is not None),
    Known("leaves of inference mode take part as others do", lambda d: d.kind == "requires_grad" and d.ampc is True and "inference" in str(d.program.steps)),
    Known("optimizers at infinities: inf - inf, where torch has a fused order", lambda d: d.kind == "value" and "optim" in d.step.source and any(not (math.isfinite(t) and math.isfinite(a)) for t, a in pairs(d))),
    Known("Bessel functions have derivatives; torch has none of them", line("special.*bessel_", "requires_grad")),
    Known("vander of one number, which is 1, has a history and the gradient 0", line("vander", "requires_grad")),
    Known("detach_copy has no history; torch marks its result as requiring gradients, and raises in backward", line("detach_copy", "requires_grad")),
    Known("a leaf's views do not follow its requires_grad", view_of_what_changed),
    Known("integers and truth values require no gradients; torch marks those that a result with a history is written into", marked_in_torch),
    Known("an in-place operator that reads overlapping memory reads it as it was", lambda d: d.kind == "value" and (d.overlapping or re.search(r"(\bv\d+)\b.*\b\1\b", d.step.source) is not None) and re.search(r"_\(|[-+*/]=", d.step.source) is not None),
    Known("gradients that autograd.grad gives have memory of their own", line(r"autograd\.grad", "aliasing")),
    Known("a gradient that backward was given is not kept", line(r"\.backward\(v", "aliasing")),
    Known("a copied view takes its own elements along, and torch's its whole storage, which as_strided sees",
          lambda d: d.kind in ("value", "aliasing") and "as_strided" in d.step.source and re.search("deepcopy|pickle|round_trip", making(d)) is not None),
    Known("a copy that a part is scattered into has elements of its own; torch's shares them as its operand did", lambda d: d.kind == "value" and re.search(r"(slice|select|diagonal)_scatter", d.step.source) is not None and re.search("unfold|expand|as_strided|broadcast", making(d)) is not None),
    Known("a copy that a part is scattered into begins its memory; torch's lies in a copy of its operand's storage", lambda d: line("as_strided", "value")(d) and re.search(r"(slice|select|diagonal)_scatter", making(d)) is not None),
    Known("a gradient may lie in a larger memory, which as_strided sees", lambda d: d.kind in ("value", "aliasing") and "as_strided" in d.step.source and "autograd.grad" in str(d.program.steps)),
    Known("bits of nan", lambda d: d.kind == "value" and (".view(torch." in making(d) or "signbit" in d.step.source) or nan_is_seen_as_bits(d)),
    Known("what a line that both refuse has left", lambda d: d.kind in ("existence", "value") and "torch: " in d.message and "ampc: " in d.message),
    Known("nan and infinities in derivatives of logit, logcumsumexp, xlogy, hypot at 0 and rounded quotients", lambda d: d.kind == "value" and re.search("logit|logcumsumexp|rounding_mode|xlogy|hypot|atan2", str(d.program.steps)) is not None and (infinite(d) or "1e+30" in making(d))),
    Known("x ** x in place has its derivative; torch reads x as it is then", lambda d: is_gradient(d) and re.search(r"(\bv\d+)(\.(pow|xlogy|div)_\(| /= )\1\b", str(d.program.steps)) is not None),
    Known("the general formula of a gradient where there is one element", lambda d: d.kind == "requires_grad" and d.ampc is True and "create_graph" in str(d.program.steps)),
    Known("dtypes of products with no elements", lambda d: d.kind == "dtype" and d.empty),
    Known("products of the smallest numbers underflow in an order of each library's own", lambda d: "1e-30" in making(d) and extreme(d)),
    Known("products of the largest numbers overflow in an order of each library's own", lambda d: d.kind == "value" and re.search(r"1e\+30|nan_to_num", making(d)) is not None and re.search(r"@|mm|mul|mv|dot|linear|einsum|conv|bilinear|attention|kron|addr|cross", making(d)) is not None and extreme(d)),
    Known("inverse squares of the largest and the smallest numbers", lambda d: is_gradient(d) and re.search("1e.30", making(d)) is not None and re.search(r" /|div|recip", str(d.program.steps)) is not None and extreme(d)),
    Known("the root of -inf is nan, by any way to write it", lambda d: d.kind == "value" and re.search(r"pow|\*\*", d.step.source) is not None and "0.5" in making(d) and infinite(d)),
    Known("renorm's derivative at nan and infinities", lambda d: is_gradient(d) and "renorm" in str(d.program.steps) and (extreme(d) or all(not (math.isfinite(t) and math.isfinite(a)) or abs(t - a) < 1e-6 for t, a in pairs(d)))),
    Known("sums of truth values with alpha", lambda d: d.kind == "value" and "alpha=" in d.step.source and re.search("True|False", str(d.torch)) is not None),
    Known("the order of hooks beside what was overwritten", lambda d: d.kind == "log" and overwritten_whole(d) and sorted(map(str, d.torch)) == sorted(map(str, d.ampc))),
    Known("clipping that changes nothing writes nothing", line("clip_grad_norm_", "version")),
    Known("the sign of 0, as an angle tells it", lambda d: d.kind == "value" and "atan2" in d.step.source and "3.14" in f"{d.torch}{d.ampc}"),
    Known("what beta=0 leaves out has no gradient; torch's is zeros", lambda d: d.kind in ("existence", "requires_grad") and "beta=0" in str(d.program.steps)),
    Known("what is written through .data goes unseen: each library's formulas then read what they have saved", lambda d: (is_gradient(d) or d.kind == "log") and re.search(r"\.data(\.\w+_\(|\[| [-+*/]?=)|(v\d+) = v\d+\.data\b.*(\2|(v\d+) = \2\b.*\4)(\.\w+_\(|\[.*\] [-+*/]?= | [-+*/]= )", str(d.program.steps)) is not None),
    Known("erf of the smallest numbers is 2 x / sqrt(pi); torch's bfloat16 loop has 0", lambda d: "erf" in d.step.source and "bfloat16" in making(d) and (tiny(d) or all(abs(t - a) < 2**-22 for t, a in pairs(d)))),
    Known("squares of the smallest numbers", lambda d: "norm" in d.step.source and tiny(d)),
    Known("the sign of nan", lambda d: d.kind == "value" and "copysign" in d.step.source and all(t == -a for t, a in pairs(d))),
    Known("the gradient by a result that a derivative is written in: of x or of f(x), as each library's formula has it", lambda d: is_gradient(d) and "autograd.grad" in d.step.source and "create_graph" in str(d.program.steps) and (re.search(r"\[v\d+, v\d+", d.step.source) is not None and "cumprod" in str(d.program.steps) or re.search(r"linalg\.solve", making(d)) is not None)),
    Known("shapes of products with no elements", lambda d: d.kind == "shape" and d.empty),
    Known("source without elements: no gradient", lambda d: d.kind == "existence" and "masked_scatter" in str(d.program.steps)),
    Known("amax and amin give their gradient to what is nan, as max and min do", lambda d: is_gradient(d) and re.search("amax|amin", str(d.program.steps)) is not None and infinite(d) or d.kind == "log" and re.search("amax|amin", str(d.program.steps)) is not None and "nan" in str(d.torch)),
    Known("copysign's derivative reads a sign; torch's the quotient of result and operand, which may have been written", lambda d: (is_gradient(d) or d.kind == "log") and "copysign" in str(d.program.steps) and ("nan" in str(d.torch) or re.search(r"_\(|[-+*/]=", str(d.program.steps)) is not None)),
    Known("hooks on saved tensors give back what they kept; torch's what that has become", lambda d: is_gradient(d) and re.search("saved_tensors_hooks|save_on_cpu", str(d.program.steps)) is not None and re.search(r"_\(|[-+*/]=", str(d.program.steps)) is not None),
    Known("what is unpickled under inference_mode is a tensor as any other", lambda d: d.kind == "result" and "is_inference" in d.step.source and "pickle" in str(d.program.steps)),
    Known("a fractional alpha or beta makes integers fractional; torch drops its fraction", line(r"(alpha|beta)=", "dtype")),
    Known("block_diag's gradient beside a block without elements", lambda d: is_gradient(d) and "block_diag" in str(d.program.steps)),
    Known("a 0-d operand of addr does not widen it", line(r"addr", "dtype")),
    Known("the hooks of what is no leaf any more are not called", lambda d: d.kind == "log" and "detach_" in str(d.program.steps) and len(d.torch) > len(d.ampc)),
    Known("the gradient of a leaf whose memory was replaced is asked for: torch looks for another leaf", lambda d: is_gradient(d) and "inputs=" in d.step.source and not_recorded(r"\.set_\(", d)),
    Known("a view of a leaf that is a view keeps its history when it is written under no_grad; torch's leads nowhere", written_view_of_leaf),
    Known("gradients find back to the geometry that a tensor had before it changed under no_grad; torch's stay as they are", lambda d: is_gradient(d) and not_recorded(GEOMETRY.pattern, d)),
    Known("what multi_margin_loss leaves out has the gradient 0; torch's is 0 times what comes back", lambda d: is_gradient(d) and "multi_margin" in str(d.program.steps) and all(a == 0 and not math.isfinite(t) for t, a in pairs(d))),
    Known("adding zeros to a gradient is no write", lambda d: d.kind == "version" and overwritten_whole(d) and BACKWARD.search(d.step.source) is not None),
    Known("strides of gradients are as they come", lambda d: line(r"autograd\.grad|\.grad\b", "strides")(d) or line("is_set_to", "result")(d) and "grad" in making(d)),
    Known("any and all give bool, of uint8 too", line(r"\.(all|any)\(", "dtype")),
    Known("each tensor of a structure is copied by itself", line(r"deepcopy|pickle|round_trip", "aliasing", "strides")),
    Known("the label of one sample may have a dimension, in backward too", only_torch_raises(r"size mismatch \(got input")),
    Known("an inverse whose numbers are as large as those of rounding are small", lambda d: d.kind == "value" and ill_conditioned(d)),
    Known("the middle of no integers is any number", lambda d: d.kind == "value" and d.empty and "median" in d.step.source),
    Known("products of more than two matrices are taken in an order of each library's own", lambda d: d.kind == "value" and "multi_dot" in d.step.source and infinite(d)),
    Known("differences of products that float16 does not hold", lambda d: d.kind == "value" and "float16" in str(d.program.steps) and infinite(d)),
    Known("clamp of nan has no gradient; torch's goes to the upper one of two bounds where they are crossed", lambda d: (is_gradient(d) or d.kind == "log") and any(np.isnan(s.values).any() for _, s in operands(d, r"clamp_?\((v\d+, )?(min=)?v\d+, (max=)?v\d+"))),
    Known("deep copies of tensors that share memory share its version, too", lambda d: d.kind == "version" and d.ampc == "written" and re.search("deepcopy|round_trip", making(d)) is not None and written_through_other_copy(d)),
    Known("a view of what was detached in place and then written has no history; torch's leads nowhere", lambda d: "detach_(" in str(d.program.steps) and (d.kind in ("requires_grad", "leaf") or only_ampc_raises("does not require gradients")(d))),
    Known("the gradient of a leaf with new data has that's shape", lambda d: d.kind == "shape" and (d.name.endswith(".grad") or BACKWARD.search(d.step.source) is not None) and re.search(r"\.data = |set_\(", str(d.program.steps)) is not None),
    Known("torch's derivative of logcumsumexp adds logarithms, which large values in 16 bits swallow", lambda d: is_gradient(d) and "logcumsumexp" in str(d.program.steps) and "float16" in str(d.program.steps)),
    Known("set_ takes memory over, not whether gradients are wanted", line(r"\.set_\(", "requires_grad")),
    Known("a new geometry in place is no write: no element changes", line(r"\.(t|transpose|swapaxes|squeeze|unsqueeze|set)_\(", "version")),
    Known("what is written in inference mode through another dtype's view, or through .data, counts as written", lambda d: d.kind == "version" and "inference_mode" in str(d.program.steps) and re.search(r"\.view\(torch\.|\.data\b", str(d.program.steps)) is not None),
    Known("numbers are compared as they are, not as a 16-bit dtype holds them", lambda d: d.kind == "value" and "float16" in making(d) and "1e+30" in d.step.source and re.search(r"\.?(eq|ne|lt|le|gt|ge)_?\(| [<>]=? | [=!]= ", d.step.source) is not None),
    Known("the version belongs to the memory: new data brings its own", line(r"\.data = ", "version")),
    Known("a view made under no_grad requires no gradients; torch's says what its base would", lambda d: d.kind == "requires_grad" and d.torch is True and ("no_grad" in str(d.program.steps) or "inference" in str(d.program.steps) or "set_grad_enabled(False)" in str(d.program.steps))),
    Known("a hook is not called where there is no gradient; torch calls it with None", lambda d: "register_hook" in str(d.program.steps) and "NoneType" in d.message),
    Known("the slope of hardtanh and softshrink at nan is 1; torch's vectorized loop has 0, the rest of it 1", lambda d: (is_gradient(d) or d.kind == "log") and re.search("hardtanh|relu6|shrink", str(d.program.steps)) is not None and re.search("nan|inf|log|sqrt|acos|asin|atanh", str(d.program.steps)) is not None),
    Known("sign and heaviside of nan are nan", lambda d: d.kind == "value" and re.search("sign|sgn|heaviside", d.step.source) is not None and "nan" in str(d.ampc)),
    Known("the sign of nan is nan where it is a factor of a gradient, too", lambda d: d.kind == "log" and re.search(r"\.sgn|\.sign\(", str(d.program.steps)) is not None and "nan" in str(d.ampc)),
    Known("torch multiplies the powers of vander in place, which spoils its gradient", lambda d: (is_gradient(d) or only_torch_raises("modified by an inplace operation")(d)) and "vander" in str(d.program.steps)),
    Known("elements that share memory have memory of their own in a copy; torch's copies share it, too",
          lambda d: d.kind == "value" and re.search("as_strided|expand|meshgrid|broadcast|unfold", making(d)) is not None and re.search("deepcopy|pickle|round_trip", making(d)) is not None and re.search(r"_\(|[-+*/]= |\] = ", d.step.source) is not None),
    Known("torch's matrix_exp in 16 bits is wrong, of the identity, too", lambda d: d.kind == "value" and "matrix_exp" in making(d) and "float16" in making(d)),
    Known("torch's matrix_exp of float32 has four digits where the norm is below 0.58", lambda d: d.kind == "value" and "matrix_exp" in making(d) and not pairs(d, 2**-13)),
    Known("torch rounds one product of cross and not the other, so that equal products leave what was rounded", lambda d: d.kind == "value" and "cross" in d.step.source and "1e+30" in making(d)),
    Known("the sign of nan is nan in the derivative of abs, too", lambda d: is_gradient(d) and re.search(r"abs|l1_loss|norm", str(d.program.steps)) is not None and infinite(d)),
    Known("sinc has a second derivative at 0, where torch's is nan, and is rounded once in 16 bits",
          lambda d: is_gradient(d) and "sinc" in making(d) and all(t != t or "float16" in making(d) and abs(t - a) < 2**-5 for t, a in pairs(d))),
    Known("compositions of torch that give rows of any operand", line(r"= (-?\d+(\.\d+)?|True|False) \*\*|multigammaln|mvlgamma|renorm|rms_norm|detach_copy", "strides")),
    Known("out= keeps the layout of its target", line("out=", "strides")),
    Known("gradients that autograd.grad gives have memory of their own, so writing one leaves the other", lambda d: d.kind == "value" and re.search(r"autograd\.grad\(.*\[v\d+, v\d+", making(d)) is not None
          and re.search(r"out=|_\(|[-+*/]= |\] = ", making(d)) is not None),
    Known("distances of the largest numbers do not overflow; torch's squares do, and inf - inf is nan", lambda d: d.kind == "value" and "triplet_margin" in d.step.source and "1e+30" in making(d) and "nan" in str(d.torch)),
    Known("a difference of two distances is rounded as these are", lambda d: d.kind == "value" and "triplet_margin" in d.step.source and all(abs(t - a) <= 2**-22 for t, a in pairs(d))),
    Known("nan_to_num gives no gradient to what was not finite, of an infinite one, too", lambda d: is_gradient(d) and "nan_to_num" in making(d) and all(t != t and a == 0 for t, a in pairs(d))),
    Known("gradients that autograd.grad gives are tensors of their own; torch's may be one tensor twice", lambda d: d.kind == "shape" and "autograd.grad" in making(d) and re.search(r"\.(t|transpose|swapaxes|squeeze|unsqueeze)_\(", d.step.source) is not None),
    Known("a result has memory for each of its elements; torch's diagonal_scatter and its like keep the overlap of an unfolded operand",
          lambda d: d.kind == "value" and re.search("unfold|as_strided", making(d)) is not None and re.search(r"(diagonal|select|slice|as_strided)_scatter", making(d)) is not None and re.search(r"_\(|[-+*/]= |\] = ", d.step.source) is not None),
    Known("a leaf that no longer requires gradients calls no hooks", lambda d: only_torch_raises("hook .* has changed the size")(d) and re.search(r"requires_grad = False|requires_grad_\(False", str(d.program.steps)) is not None),
    Known("histc finds the bin of a value in float64", lambda d: d.kind == "value" and "histc" in d.step.source and same_count(d)),
    Known("1 - cos of the same direction is what rounding leaves", lambda d: d.kind == "value" and "cosine" in d.step.source and all(abs(t - a) < 1e-14 for t, a in pairs(d))),
    Known("hooks of a leaf follow its requires_grad, as its views do not", lambda d: (d.kind == "log" or d.kind == "exception" and d.torch is None and d.ampc == "KeyError") and "requires_grad_(" in str(d.program.steps)
          and "post_accumulate" in str(d.program.steps)),
    Known("moments of infinities are not those that torch's running update comes to", lambda d: d.kind == "value" and re.search("var|std|layer_norm|mean", d.step.source) is not None and (infinite(d) or tiny(d))),
    Known("autocast has one policy, that of torch's CUDA lists; torch's CPU lists are shorter", widened_by_autocast),
    Known("torch marks results of heaviside as requiring gradients, and raises in backward", line("heaviside", "requires_grad", "leaf")),
    Known("torch leaves results marked as requiring gradients after comparisons in place", line(r"\.(eq|ne|lt|le|gt|ge)_\(", "requires_grad", "leaf")),
    Known("torch gives nan for gelu(inf) in its vectorized loop", lambda d: "gelu" in d.step.source and d.kind == "value" and "inf" in str(d.ampc)),
    Known("torch writes before it refuses to write to a tensor made in inference mode", lambda d: d.kind in ("value", "shape", "strides", "aliasing") and "inference tensor" in d.message),
    Known("a target that overlaps operands is written as if these had been copied first", lambda d: d.kind == "value" and "out=" in d.step.source),
]

KNOWN: List[Known] = TAKEN + REFUSED + RAISED + RESULTS


def explanation(d: Difference) -> Optional[str]:
    return next((k.reason for k in KNOWN if k.fits(d)), None)
