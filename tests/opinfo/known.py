"""Where ampc differs from torch on purpose, by torch's own samples; and what is still open."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Callable, List, NamedTuple, Optional, Set

from .running import Difference


class Known(NamedTuple):
    reason: str
    holds: Callable[[Difference], bool]


def told(pattern: str) -> Callable[[Difference], bool]:
    """ampc's message fits."""
    return lambda d: re.search(pattern, d.ampc) is not None


def numbers(d: Difference) -> List[float]:
    """The two numbers that differ, torch's and ampc's; nothing where they are not numbers."""
    found = [re.fullmatch(r"(?:\[\d+ of \d+\] )?([-+\d.e]+)", text) for text in (d.torch, d.ampc)]
    return [float(m.group(1)) for m in found if m] if all(found) else []


def near(relative: float, absolute: float) -> Callable[[Difference], bool]:
    """The values differ by no more than that."""
    def holds(d: Difference) -> bool:
        found = numbers(d)
        return bool(found) and abs(found[0] - found[1]) <= absolute + relative * abs(found[0])
    return holds


def close(d: Difference, room: float, signs: bool = True) -> bool:
    """Whether the values are within `room` of each other, relatively; or their sizes are."""
    found = numbers(d) if signs else [abs(x) for x in numbers(d)]
    return bool(found) and abs(found[0] - found[1]) <= room * max(map(abs, found))


def tied(d: Difference) -> bool:
    """An index differs. Values are compared before indices, so they are the same; in floating point they would print with a point."""
    return d.kind == "value" and re.fullmatch(r"\[\d+ of \d+\] \d+", d.torch) is not None and "'stable': True" not in d.sample


NORMS = {f"nn.functional.{name}" for name in ("layer_norm", "batch_norm", "group_norm", "instance_norm", "normalize", "cosine_similarity")}
ROUNDING = {"float32": 1e-6, "float64": 1e-13}

KNOWN: List[Known] = [
    Known("complex and sparse tensors are not in ampc", lambda d: d.operator in ("cdouble", "cfloat", "chalf", "to_sparse") and d.kind == "missing"),
    Known("a cast lies by rows, whatever the strides of its operand",
          lambda d: d.kind == "strides" and d.operator in ("bool", "byte", "char", "short", "int", "long", "half", "bfloat16", "float", "double", "unravel_index")),
    Known("which of equal values an unstable order takes is left open by torch; here it is the first, of `mode` the last",
          lambda d: d.operator in ("sort", "argsort", "topk", "kthvalue", "mode") and "gradient" not in d.way and tied(d)),
    Known("an `out` that holds every value of the result is taken", lambda d: d.way == "error" and d.ampc == "no exception"
          and (d.operator, re.sub(".*?(expects|Expected out tensor|to have dtype)", "", d.torch)) in (("aminmax", " float, but got double instead"), ("multinomial", " Long tensor out, got: Double"))),
    Known("`out` may be one of the tensors that are joined, or share their memory: all are read before it is written",
          lambda d: d.operator == "cat" and d.way == "error" and "refer to a single memory location" in d.torch and d.ampc == "no exception"),
    Known("a tensor of one element is a number, of one dimension, too", lambda d: d.operator == "narrow" and "start must be an 0-dim integral Tensor" in d.torch and d.ampc == "no exception"),
    Known("which of equal values gets the gradient is open, too", lambda d: d.operator == "msort" and "gradient" in d.way and d.kind == "value" and d.dtype in ("float16", "bfloat16")),
    Known("windows are computed in float64 and rounded once", lambda d: d.operator.startswith("signal.windows.") and d.dtype == "float32" and near(0, 5e-8)(d)),
    Known("integers are added up and subtracted as int64; torch's sums and differences of bytes wrap",
          lambda d: d.operator in ("trapz", "trapezoid", "cumulative_trapezoid") and d.dtype in ("uint8", "int8") and d.kind == "value"),
    Known("a correlation of two observations is 1 or -1 and its gradient 0; what is left is rounding",
          lambda d: d.operator == "corrcoef" and d.way.endswith("gradient") and d.dtype == "float64" and near(0, 1e-14)(d)),
    Known("logarithms near 1e4 keep 12 digits of a float64's 16", lambda d: d.operator == "logcumsumexp" and d.way.endswith("gradient") and d.dtype == "float64" and near(2e-11, 0)(d)),
    Known("gradients of singular values, to rounding", lambda d: d.operator == "linalg.norm" and d.way.endswith("gradient") and d.dtype == "float64" and near(1e-13, 0)(d)),
    Known("the gradient of a count of what is not 0 is 0; torch gives None",
          lambda d: d.operator in ("norm", "linalg.norm", "linalg.norm (subgradients_at_zero)", "linalg.vector_norm") and d.way.endswith("gradient") and d.kind == "type" and d.torch == "NoneType"),
    Known("the message names what is wrong; torch's, also a RuntimeError, names its kernel",
          lambda d: d.operator in ("nansum", "nanmean") and d.way == "out=, integers" and "nansum_cpu" in d.torch and d.ampc.startswith("RuntimeError")),
    Known("a norm's gradient is what is left of larger terms; both round them",
          lambda d: d.operator in NORMS and "gradient" in d.way and d.dtype in ROUNDING and near(0, ROUNDING[d.dtype])(d)),
    Known("the gradient of ctc_loss in float64: both round sums over all steps",
          lambda d: d.operator in ("nn.functional.ctc_loss", "CTCLoss") and "gradient" in d.way and d.dtype == "float64" and near(0, 1e-11)(d)),
    Known("torch's way in parts keeps 16-bit logits in float32, ampc's rounds them as the whole ones",
          lambda d: d.operator.startswith("nn.functional.linear_cross_entropy (chunked") and d.dtype in ("bfloat16", "float16") and near(0, 0.01)(d)),
    Known("attention in float64: both round its sums",
          lambda d: d.operator == "nn.functional.scaled_dot_product_attention" and d.dtype == "float64" and near(0, 1e-12)(d)),
    Known("torch's hardsigmoid has the slope 1 / 6 in float32, for float64, too",
          lambda d: d.operator == "nn.functional.hardsigmoid" and "gradient" in d.way and d.dtype == "float64" and near(0, 1e-6)(d)),
    Known("torch writes past the strides of `out`",
          lambda d: d.operator in ("nn.functional.gelu", "nn.functional.avg_pool3d") and d.way == "out=, strided" and d.kind == "value"),
    Known("`out` keeps its strides; torch gives it others", lambda d: d.operator == "nn.functional.linear" and d.way == "out=, strided" and d.kind == "strides"),
    Known("convolution and what is made of it takes floating point only; torch takes int64, without a gradient",
          lambda d: re.fullmatch(r"nn\.functional\.(conv(_transpose)?[123]d|local_response_norm)", d.operator) is not None and d.dtype == "int64"
          and "must be floating point, got int64" in d.ampc),
    Known("an empty tensor of one dimension has no channels", lambda d: d.operator == "nn.functional.batch_norm" and "got shape [0]" in d.ampc),
    Known("a word that is not among those allowed is a ValueError", lambda d: d.operator == "nn.functional.gelu" and "must be one of" in d.ampc),
    Known("normalisation and attention in float64: both round their sums",
          lambda d: d.operator in ("GroupNorm", "TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer") and d.dtype == "float64" and near(0, 1e-12)(d)),
    Known("L-BFGS enlarges what both round",
          lambda d: d.operator == "LBFGS" and d.way.startswith("step") and near(0, {"float32": 1e-2, "float64": 1e-11}[d.dtype])(d)),
    Known("torch keeps NAdam's product of momenta and ASGD's rate in float32, for float64, too",
          lambda d: d.operator in ("NAdam", "ASGD") and d.way.startswith("step") and d.dtype == "float64" and near(0, 1e-8)(d)),
    Known("L-BFGS keeps no room between steps, and no loss that only a search along the line reads",
          lambda d: d.operator == "LBFGS" and d.way == "state" and set(re.findall(r"'(\w+)'", d.torch)) - set(re.findall(r"'(\w+)'", d.ampc)) <= {"al", "prev_loss"}),
    Known("options may be Tensors of one element, each of its own, in the one way that there is", lambda d: d.way == "error" and d.ampc == "no exception"
          and re.search("lr as a Tensor is not supported|betas must be either both floats or both Tensors|betas\\[[01]\\] as a Tensor", d.torch) is not None),
    Known("factors are unique but for signs, which depend on the version of LAPACK",
          lambda d: d.operator in ("svd", "linalg.svd", "linalg.eigh") and d.kind == "value" and "gradient" not in d.way and close(d, 1e-5, signs=False)),
    Known("factors are row-major, where LAPACK's are column-major", lambda d: d.operator in ("svd", "svd_lowrank", "pca_lowrank", "linalg.tensorinv") and d.kind == "strides"),
    Known("in float64, which nothing is compared with but torch's own rounding, chains of matrix products differ in their last digits",
          lambda d: d.dtype == "float64" and d.kind == "value" and close(d, 1e-12)
          and d.operator in ("matrix_exp", "linalg.pinv (singular)", "linalg.pinv (hermitian)", "linalg.svd", "svd", "linalg.norm")),
    Known("an index out of range is an IndexError everywhere; torch's gather and scatter raise RuntimeError",
          lambda d: d.way == "error" and re.search(r"RuntimeError: index \d+ is out of bounds", d.torch) is not None
          and re.match(r"IndexError: (gather|scatter_add|index_put): index \d+ is out of range", d.ampc) is not None),
    Known("out= takes results of a narrower dtype of its kind everywhere; torch's gather does not",
          lambda d: (d.operator, d.way, d.ampc) == ("gather", "error", "no exception") and "Expected out tensor to have dtype" in d.torch),
    Known("torch's gradient of as_strided_scatter is that of what is overwritten, where it should be of what is not (its gradcheck fails)",
          lambda d: d.operator == "as_strided_scatter" and "gradient" in d.way and d.kind == "value"),
    Known("as_strided_scatter has a gradient of tensors that are not contiguous, too",
          lambda d: d.operator == "as_strided_scatter" and "INTERNAL ASSERT FAILED" in d.torch and d.ampc == "no exception"),
    Known("out= of a product keeps its strides, where torch gives it new memory",
          lambda d: d.operator == "matmul" and (d.way, d.kind) == ("out=, strided", "strides")),
    Known("functions of numbers alone, or of a number and a tensor, are accepted where torch wants tensors",
          lambda d: d.way == "error" and d.ampc == "no exception" and d.torch.startswith("TypeError: ")
          and re.search(r"must be Tensor, not int|got \(int, (int|Tensor)\)", d.torch) is not None),
    Known("has a derivative where torch has none", lambda d: "gradient" in d.way and re.search("derivative for .* is not implemented", d.torch) is not None and d.ampc == "no exception"),
    Known("torch's Muon rounds what decay leaves to float32 where the rate is a float32 tensor, for float64, too",
          lambda d: d.operator == "Muon" and "'lr': tensor" in d.sample and d.dtype == "float64" and near(0, 1e-6)(d)),
    Known("two numbers make a 0-d tensor, where torch wants a tensor among them", lambda d: d.way == "error" and "(int, int)" in d.torch and d.ampc == "no exception"),
    Known("torch's Bessel functions have 7 digits in float64; ampc's have 15 (tests/test_special.py)",
          lambda d: d.operator in ("special.bessel_j0", "special.bessel_j1", "special.bessel_y0", "special.bessel_y1") and d.kind == "value"),
    Known("torch's trigamma, which is digamma's derivative, has 9 digits in float64 and 5 in float32; ampc's has all (tests/test_special.py)",
          lambda d: (d.operator == "digamma" and "gradient" in d.way or "polygamma" in d.operator) and d.dtype in ("float32", "float64") and d.kind == "value"),
    Known("trigamma is infinite at 0, -1, -2 ...; torch gives what rounding leaves of it", lambda d: "polygamma" in d.operator and d.kind == "value" and re.search(r"e\+|\d{9}", d.torch) is not None and d.ampc.endswith(" inf")),
    Known("torch's narrow_copy reads strided tensors as if they were dense where it writes to out=", lambda d: d.operator == "narrow_copy" and d.way == "out=, strided" and d.kind == "value"),
    Known("narrow_copy has torch's error for a wrong dimension everywhere else, IndexError; torch has an internal assertion here", lambda d: d.operator == "narrow_copy" and "Expected dim < " in d.torch),
    Known("least squares have their residuals by every driver, as torch's documentation says; torch's gelsy leaves them out",
          lambda d: d.operator in ("linalg.lstsq", "linalg.lstsq (grad_oriented)") and d.kind == "shape" and d.torch == "(0,)" and "'driver': 'gelsy'" in d.sample),
    Known("ndtr keeps its digits far below 0, where torch's is rounded to 0", lambda d: d.operator == "special.ndtr" and d.kind == "value"),
]


def explained(d: Difference) -> Optional[str]:
    return next((k.reason for k in KNOWN if k.holds(d)), None)


def still_open() -> Set[str]:
    """Entries of the database that differ without a reason: to be mended. Each line of open.txt is one."""
    return set((Path(__file__).parent / "open.txt").read_text().split("\n")) - {""}
