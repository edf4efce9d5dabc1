"""Wrong calls over the public API, made from valid ones by spoiling each argument in turn, and what torch and ampc say of them.

valid_calls.py has calls as text, in which ``t(2, 3)`` is a float32 tensor with values between 0 and 1, ``n`` an int64 one of zeros and ones, ``b``
a bool one. ``wrong_calls()`` replaces an argument by one of another type, shape, dtype, sign or size, leaves it out, or adds one; those that
torch itself refuses are wrong. ``python wrong_calls.py [WORD]`` lists where ampc accepts or raises another type."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from typing import Any, Iterator

from valid_calls import valid

# -- spoiling ----------------------------------------------------------------------------------------------------

HELPERS = {"t", "n", "b", "spd", "leaf", "params", "sgd"}
BIG = str(2**63)


def of_tensor(node: ast.Call) -> list[str]:
    """Other things than this tensor: no tensor, or one of another dtype or shape."""
    name, sizes = node.func.id, [a.value for a in node.args]
    dtypes = {"t": [f"n({node_args(sizes)})", f"b({node_args(sizes)})", f"t({node_args(sizes)}).double()", f"t({node_args(sizes)}).half()"],
              "n": [f"t({node_args(sizes)})", f"b({node_args(sizes)})", f"n({node_args(sizes)}) + 1000", f"n({node_args(sizes)}) - 1000"],
              "b": [f"t({node_args(sizes)})", f"n({node_args(sizes)})"]}.get(name, [])
    if name in ("params", "sgd"):
        return ["None", "5", "'x'", "[]", "object()", "t(2)", "[None]", "[t(2)]", "[{'params': 5}]", "{}"]
    shapes = [[*sizes, 1], sizes[:-1], [s + 3 for s in sizes], [7, *sizes], [*sizes[:-1], sizes[-1] + 1], [sizes[0] + 2, *sizes[1:]], [0, *sizes[1:]], []] if name != "spd" else [[4]]
    return ["None", "'x'", "object()", "1.5", "[0.5, 'x']", "{}", *dtypes, *[f"{name}({node_args(s)})" for s in shapes if s or name != "spd"],
            *(["t(2, 3)", "-spd(3)", "n(3, 3)", "t(3, 3).half()"] if name == "spd" else []), *([f"t({node_args(sizes)}) * 5", f"-t({node_args(sizes)})"] if name == "t" else [])]


def node_args(sizes: list) -> str:
    return ", ".join(map(str, sizes))


def of_constant(value: Any) -> list[str]:
    if isinstance(value, bool):
        return ["None", "'x'", "object()", "[]", "t(2)", "2.5"]
    if isinstance(value, int):
        return ["None", "'x'", "object()", "2.5", "-100", "-1", "0", "100", BIG, "[]", "[1, 'x']", "t(2)", "1j"]
    if isinstance(value, float):
        return ["None", "'x'", "object()", "-1.0", "5.0", "[]", "t(2)", "float('nan')", "1j", "{}"]
    if isinstance(value, str):
        return ["None", "'nonsense'", "5", "object()", "''", "t(2)", "b'x'", "[]"]
    return ["'x'", "5", "object()"]


def spoilt(node: ast.expr) -> list[str]:
    """What stands in for an argument, as text."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in HELPERS:
        return of_tensor(node)
    if isinstance(node, ast.UnaryOp):
        return of_constant(node.operand.value) if isinstance(node.operand, ast.Constant) else []
    if isinstance(node, ast.Constant):
        return of_constant(node.value)
    if isinstance(node, (ast.Tuple, ast.List)):
        parts = [ast.unparse(e) for e in node.elts]
        opened, closed = "[]" if isinstance(node, ast.List) else "()"
        swaps = [[*parts[:i], s, *parts[i + 1:]] for i, e in enumerate(node.elts[:2]) for s in spoilt(e)[:12]]
        return ["None", "'x'", "object()", "()", "5", "1.5", *[f"{opened}{', '.join(p)},{closed}" for p in [parts[:-1], [*parts, parts[-1] if parts else "1"], *swaps] if p]]
    if isinstance(node, ast.Attribute):  # a dtype
        return ["'float32'", "5", "object()", "torch", "'x'", "float", "t(2)"]
    if isinstance(node, ast.Dict):
        return ["None", "5", "[]", "{}", "{'x': 1}", "[1, 2]"]
    if isinstance(node, ast.Slice):
        return []
    return ["None", "5", "'x'", "object()", "t(2)"]


def spoil(text: str) -> Iterator[str]:
    """The call with one argument of one of its calls spoilt, but for those that torch would work at for ever: 2^63 layers."""
    layers = text.startswith(("nn.RNN(", "nn.LSTM(", "nn.GRU(", "nn.Transformer"))
    for spoilt_text in _spoil(text):
        if not (layers and BIG in spoilt_text):
            yield spoilt_text


def _spoil(text: str) -> Iterator[str]:
    tree = ast.parse(text, mode="eval")
    for call in [node for node in ast.walk(tree) if isinstance(node, (ast.Call, ast.Subscript))]:
        if isinstance(call, ast.Subscript):
            yield from _replaced(tree, call, "slice", ["object()", "'x'", "1.5", "100", "-100", "t(2)", "b(5)", "n(2) + 50", "(0, 0, 0)", "(None, 9)", "[1.5]", "slice('x')", "slice(None, None, -1)",
                                                      "slice(None, None, 0)", "{}", BIG, "(b(7, 7),)", "(object(), 0)", "(..., 0, ...)"])
            continue
        if isinstance(call.func, ast.Name):  # a helper
            continue
        for i, arg in enumerate(call.args):
            whole = list(call.args)
            for other in spoilt(arg):
                call.args = [*whole[:i], ast.parse(other, mode="eval").body, *whole[i + 1:]]
                yield ast.unparse(tree)
            call.args = whole
        for keyword in call.keywords:
            yield from _replaced(tree, keyword, "value", spoilt(keyword.value))
        args, keywords = list(call.args), list(call.keywords)
        if args:
            call.args = args[:-1]  # one is missing
            yield ast.unparse(tree)
        call.args = [*args, *[ast.Constant(value="surplus")] * 9]
        yield ast.unparse(tree)
        call.args, call.keywords = args, [*keywords, ast.keyword(arg="nonsense", value=ast.Constant(value=1))]
        yield ast.unparse(tree)
        call.keywords = keywords


def _replaced(tree: Any, owner: Any, field: str, texts: list[str]) -> Iterator[str]:
    was = getattr(owner, field)
    for text in texts:
        setattr(owner, field, ast.parse(text, mode="eval").body)
        yield ast.unparse(tree)
    setattr(owner, field, was)


# -- running -----------------------------------------------------------------------------------------------------


def world(lib: Any) -> dict:
    """What the texts speak of, in one of the libraries."""
    def numbers(*sizes: int) -> int:
        count = 1
        for s in sizes:
            count *= s
        return count

    def t(*sizes: int) -> Any:
        k = numbers(*sizes)
        return ((lib.arange(k).float() + 0.5) / max(k, 1)).reshape(sizes)

    def n(*sizes: int) -> Any:
        return (lib.arange(numbers(*sizes)) % 2).reshape(sizes)

    def spd(k: int) -> Any:
        return lib.eye(k) * 3 + t(k, k) * 0.1 + t(k, k).T * 0.1

    def params() -> list:
        return [lib.nn.Parameter(t(2, 3))]

    return {"torch": lib, "nn": lib.nn, "F": lib.nn.functional, "t": t, "n": n, "b": lambda *s: n(*s).bool(), "spd": spd, "leaf": lambda *s: t(*s).requires_grad_(), "params": params,
            "sgd": lambda: lib.optim.SGD(params(), lr=0.1)}


def said(text: str, names: dict) -> Any:
    """The exception of a call, or None. What a call changes for the process is put back."""
    lib = names["torch"]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eval(text, dict(names))
    except Exception as error:
        return error
    finally:
        if "set_" in text:
            lib.set_default_dtype(lib.float32)
            lib.set_grad_enabled(True)
            lib.set_num_threads(2)
    return None


def same_kind(mine: Exception, theirs: Exception) -> bool:
    """Whether who catches torch's type catches ours. torch's own types stand under the same name."""
    wanted = [c.__name__ for c in type(theirs).__mro__]
    return isinstance(mine, type(theirs)) or (type(theirs).__module__.startswith("torch") and type(mine).__name__ == wanted[0].lstrip("_"))


def compare(word: str = "", part: int = 0, parts: int = 1) -> tuple[list, list, int]:
    """Of every ``parts``-th valid call: calls that ampc accepts, those with another type of exception (each with both answers), and how many are wrong for torch."""
    import torch

    import ampc

    theirs, ours = world(torch), world(ampc)
    accepted, other, count, seen = [], [], 0, set()
    for good in valid()[part::parts]:
        if word not in good:
            continue
        assert said(good, theirs) is None, (good, said(good, theirs))
        for text in spoil(good):
            if text in seen:
                continue
            seen.add(text)
            want = said(text, theirs)
            if want is None or type(want) is SyntaxError:
                continue
            count += 1
            got = said(text, ours)
            if got is None:
                accepted.append((text, want))
            elif not same_kind(got, want):
                other.append((text, want, got))
    return accepted, other, count


# Why ampc takes what torch refuses: patterns of torch's message, or of the call, and the reason.
REASONS = [
    (r"not implemented for|ntegral inputs|unsupported data type|not support|nsupported input type|supports floating point|infer output dtype|to have floating point|get_mkldnn",
     "torch has no kernel for this dtype; ampc computes it, integers as floats"),
    (r"Subtraction, the|Negation, the|boolean masks|BoolTensor|attn_mask dtype", "truth values count as 0 and 1 in compositions, and numbers as truth values in masks"),
    (r"can't be cast to the desired output|same dtype|dtypes must be the same|expected scalar type|must be floating point|scalar type",
     "a composition promotes operands of several dtypes; its products refuse them"),
    (r"Overflow|multiplication overflow|failed to unpack", "the result is empty or the same for any number so large"),
    (r"argument '(input|values)'.* must be Tensor, not float|must be Number, not Tensor|fmod\(|copysign\(|argument 'other'.* must be Tensor|(lt|le|gt|ge|eq|ne)\(\) received",
     "a number stands for a 0-d tensor on either side"),
    (r"NoneType|missing \d+ required|must be int, not None|randn\(\) received|positional argument", "None, or nothing, means the default: all dimensions, size (), the CPU"),
    (r"must be tuple of ints, not int|invalid type: 'float'|dtype must be a type|only floating-point types are supported|dtype of long|must be str, not int|takes an iterable",
     "one int stands for a tuple of one, a Python type for its dtype, an object with an index for an int"),
    (r"(heaviside|prod|hsplit|vsplit|dsplit|randint|normal|to|eye|upsample_nearest2d|tile|squeeze)\(\) received", "a tensor or float of whole numbers stands for the ints in it"),
    (r"must be torch\.dtype, not Tensor", "finfo and iinfo take a tensor for its dtype, as the array API has it"),
    (r"Boolean value of Tensor|must be int, not float|cannot be interpreted as an integer", "only used as a truth value or number, never looked at further"),
    (r"dimensions?|0-d|1-d|1D|2D|size|shape|expand|number of|dims|too small|reshape|out of bounds|larger|1-dim|inconsistent|weight must|matrix @ vector|to be true|len\(\)|If dim is specified|input\.dim\(\)|of length",
     "ampc broadcasts, squeezes or cuts where torch asks for the exact shape; nothing is read beyond its tensor"),
    (r"non-negative|greater than|must be positive|positive integer|should be|less than|expects|out of range|must not be negative|nan|not be empty|non-empty|both be None|primitive|StackList|Found an invalid|valid range|N must|split",
     "a number whose result is defined all the same: an empty tensor, nan, or the other end"),
]


def reason(text: str, error: Exception) -> str | None:
    """Why a call that torch refuses is accepted; None for one that nobody has looked at."""
    said_by_torch = str(error)
    return next((why for pattern, why in REASONS if re.search(pattern, said_by_torch)), None)


def main(word: str = "") -> None:
    accepted, other, count = compare(word)
    for text, want in accepted:
        print(f"ACCEPTED {text}   torch: {type(want).__name__}: {str(want).splitlines()[0] if str(want) else ''}"[:260], "  reason:", reason(text, want))
    for text, want, got in other:
        print(f"OTHER {text}   torch: {type(want).__name__}: {(str(want).splitlines() or [''])[0][:90]}   ampc: {type(got).__name__}: {(str(got).splitlines() or [''])[0][:90]}")
    print(f"{count} wrong calls: {len(accepted)} accepted, {len(other)} of another type, {100 * (1 - (len(accepted) + len(other)) / max(count, 1)):.2f} % alike")


if __name__ == "__main__":
    main(*sys.argv[1:])
