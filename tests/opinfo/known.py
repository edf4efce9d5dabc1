"""Where ampc differs from torch on purpose, by torch's own samples; and what is still open. docs/compatibility.md lists the reasons."""

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


KNOWN: List[Known] = [
    Known("ampc has no complex and no sparse tensors", lambda d: d.operator in ("cdouble", "cfloat", "chalf", "to_sparse") and d.kind == "missing"),
    Known("unravel_index: the strides of results differ", lambda d: d.kind == "strides" and d.operator == "unravel_index"),
    Known("cat, masked_select: `out` may be one of the tensors, or share their memory. All are read before it is written",
          lambda d: d.operator in ("cat", "masked_select") and d.way == "error" and "refer to a single memory location" in d.torch and d.ampc == "no exception"),
    Known("nextafter: a number may stand for a tensor, as in the array API, though not beside integers",
          lambda d: d.operator == "nextafter" and d.way == "error" and "must be Tensor, not int" in d.torch and "needs floating point" in d.ampc),
    Known("narrow: `start` may be a tensor of one element, of one dimension, too", lambda d: d.operator == "narrow" and "start must be an 0-dim integral Tensor" in d.torch and d.ampc == "no exception"),
    Known("msort: which of several equal values gets the gradient is not defined", lambda d: d.operator == "msort" and "gradient" in d.way and d.kind == "value" and d.dtype in ("float16", "bfloat16")),
    Known("signal.windows: computed in float64 and rounded once, so the last digit of float32 may differ", lambda d: d.operator.startswith("signal.windows.") and d.dtype == "float32" and near(0, 5e-8)(d)),
    Known("trapezoid, cumulative_trapezoid: integers are added as int64. torch's sums of uint8 and int8 wrap",
          lambda d: d.operator in ("trapz", "trapezoid", "cumulative_trapezoid") and d.dtype in ("uint8", "int8") and d.kind == "value"),
    Known("norm, linalg.norm, linalg.vector_norm: with ord=0 the gradient is 0. torch gives None",
          lambda d: d.operator in ("norm", "linalg.norm", "linalg.norm (subgradients_at_zero)", "linalg.vector_norm") and d.way.endswith("gradient") and d.kind == "type" and d.torch == "NoneType"),
    Known("nansum, nanmean: the message says which dtype `out` must have. torch's NotImplementedError names its kernel",
          lambda d: d.operator in ("nansum", "nanmean") and d.way == "out=, integers" and "nansum_cpu" in d.torch and d.ampc.startswith("WrongOut: ")),
    Known("LinearCrossEntropyLoss: gradients are differences of near numbers. Both libraries' differ from float64's by roundings of the logits, in 16 bits ampc's a little less",
          lambda d: d.operator == "LinearCrossEntropyLoss" and "gradient" in d.way and near(0, {"float32": 1e-7, "float64": 0}.get(d.dtype, 0.05))(d)),
    Known("LBFGS: a step ends where the loss changes by less than 1e-9, which at its last digits is a matter of rounding",
          lambda d: d.operator == "LBFGS" and d.way.startswith("step") and near(0, {"float32": 1e-2, "float64": 1e-4 if d.way == "step 5" else 1e-11}[d.dtype])(d)),
    Known("matrix_exp: of large numbers, the last digits are the rounding of a chain of squares", lambda d: d.operator == "matrix_exp" and d.dtype == "float64" and d.kind == "value" and close(d, 1e-12)),
    Known("special.ndtr: keeps its digits far below 0, where torch's is rounded to 0", lambda d: d.operator == "special.ndtr" and near(0, {"float64": 1e-16}.get(d.dtype, 1e-7))(d)),
    Known("hardsigmoid: its slope in float64 is 1 / 6. torch rounds it to float32",
          lambda d: d.operator == "nn.functional.hardsigmoid" and "gradient" in d.way and d.dtype == "float64" and near(0, 1e-6)(d)),
    Known("gelu, avg_pool3d: torch ignores the strides of `out`",
          lambda d: d.operator in ("nn.functional.gelu", "nn.functional.avg_pool3d") and d.way == "out=, strided" and d.kind == "value"),
    Known("linear: `out` keeps its strides. torch gives it others", lambda d: d.operator == "nn.functional.linear" and d.way == "out=, strided" and d.kind == "strides"),
    Known("Convolution and local_response_norm take floating point. torch takes int64, too",
          lambda d: re.fullmatch(r"nn\.functional\.(conv(_transpose)?[123]d|local_response_norm)", d.operator) is not None and d.dtype == "int64"
          and "must be floating point, got int64" in d.ampc),
    Known("batch_norm: an empty tensor of one dimension is refused, because it has no channels", lambda d: d.operator == "nn.functional.batch_norm" and "got shape [0]" in d.ampc),
    Known("NAdam, ASGD: torch keeps the product of momenta and the rate in float32, for float64 parameters, too",
          lambda d: d.operator in ("NAdam", "ASGD") and d.way.startswith("step") and d.dtype == "float64" and near(0, 1e-8)(d)),
    Known("LBFGS: its state has no entries `al` and `prev_loss`",
          lambda d: d.operator == "LBFGS" and d.way == "state" and set(re.findall(r"'(\w+)'", d.torch)) - set(re.findall(r"'(\w+)'", d.ampc)) <= {"al", "prev_loss"}),
    Known("Optimizers: `lr` and each of `betas` may be a Tensor of one element", lambda d: d.way == "error" and d.ampc == "no exception"
          and re.search("lr as a Tensor is not supported|betas must be either both floats or both Tensors|betas\\[[01]\\] as a Tensor", d.torch) is not None),
    Known("svd, linalg.eigh: signs of factors depend on the version of LAPACK",
          lambda d: d.operator in ("svd", "linalg.svd", "linalg.eigh") and d.kind == "value" and "gradient" not in d.way and close(d, 1e-5, signs=False)),
    Known("svd, linalg.svd: of full matrices, the columns and rows beyond the singular values are any that are orthonormal", lambda d: d.operator in ("svd", "linalg.svd")
          and d.kind == "value" and "gradient" not in d.way and re.search("'full_matrices': True|'some': False|args=\\(False", d.sample) is not None),
    Known("Linear algebra, nonzero, argwhere: results are row-major. torch's are often column-major, as LAPACK's", lambda d: d.operator in ("svd", "svd_lowrank", "pca_lowrank", "linalg.tensorinv") and d.kind == "strides"),
    Known("gather, scatter: an index out of range is an IndexError. torch raises RuntimeError here, and IndexError elsewhere",
          lambda d: d.way == "error" and re.search(r"RuntimeError: index \d+ is out of bounds", d.torch) is not None
          and re.match(r"IndexError: (gather|scatter\w*|index_put)( on the GPU)?: index \d+( in `\w+`)? is out of range", d.ampc) is not None),
    Known("as_strided_scatter: torch's gradient does not pass its own gradcheck. ampc's does",
          lambda d: d.operator == "as_strided_scatter" and "gradient" in d.way and d.kind == "value"),
    Known("as_strided_scatter: has a gradient of tensors that are not contiguous, too",
          lambda d: d.operator == "as_strided_scatter" and "INTERNAL ASSERT FAILED" in d.torch and d.ampc == "no exception"),
    Known("matmul: `out` keeps its strides. torch gives it new memory",
          lambda d: d.operator == "matmul" and (d.way, d.kind) == ("out=, strided", "strides")),
    Known("Elementwise functions take a number in place of each tensor",
          lambda d: d.way == "error" and d.ampc == "no exception" and d.torch.startswith("TypeError: ")
          and re.search(r"must be Tensor, not int|got \(int, (int|Tensor)\)", d.torch) is not None),
    Known("Some operators have a derivative where torch has none", lambda d: "gradient" in d.way and re.search("derivative for .* is not implemented", d.torch) is not None and d.ampc == "no exception"),
    Known("Muon: torch rounds the decayed parameter to float32 if `lr` is a float32 tensor, for float64 parameters, too",
          lambda d: d.operator == "Muon" and "'lr': tensor" in d.sample and d.dtype == "float64" and near(0, 1e-6)(d)),
    Known("Elementwise functions of two numbers give a 0-d tensor. torch asks for a tensor among them", lambda d: d.way == "error" and "(int, int)" in d.torch and d.ampc == "no exception"),
    Known("special.bessel_j0, j1, y0, y1: torch's have 7 digits in float64. ampc's have 15",
          lambda d: d.operator in ("special.bessel_j0", "special.bessel_j1", "special.bessel_y0", "special.bessel_y1") and d.kind == "value" and near(1e-6, 1e-6)(d)),
    Known("special.airy_ai: torch's has 5 to 7 digits in float64. ampc's has 15", lambda d: d.operator == "special.airy_ai" and d.kind == "value" and near(1e-6, 1e-6)(d)),
    Known("polygamma(1), which is digamma's derivative: torch's has 9 digits in float64 and 5 in float32. ampc's has all",
          lambda d: (d.operator == "digamma" and "gradient" in d.way or "polygamma" in d.operator) and d.dtype in ("float32", "float64") and close(d, {"float32": 1e-4, "float64": 1e-8}[d.dtype])),
    Known("polygamma: infinite at 0, -1, -2 and so on. torch gives a large number there", lambda d: "polygamma" in d.operator and d.kind == "value" and re.search(r"e\+|\d{9}", d.torch) is not None and d.ampc.endswith(" inf")),
    Known("narrow_copy: with `out=`, torch reads strided tensors as if they were dense", lambda d: d.operator == "narrow_copy" and d.way == "out=, strided" and d.kind == "value"),
    Known("narrow_copy: a wrong dimension is an IndexError. torch has an internal assertion here", lambda d: d.operator == "narrow_copy" and "Expected dim < " in d.torch),
    Known("poisson_nll_loss: with `full`, the gradient of a target of 0 is finite. torch gives nan",
          lambda d: d.operator == "nn.functional.poisson_nll_loss" and d.way.endswith("gradient") and d.torch.endswith(" nan") and "nan" not in d.ampc),
    Known("linalg.householder_product, ormqr: empty matrices have an empty gradient. torch gives None",
          lambda d: d.operator in ("linalg.householder_product", "ormqr") and d.way.endswith("gradient") and d.torch == "NoneType" and "tensor([], " in d.sample),
    Known("linalg.lstsq: every driver gives the residuals, as torch's documentation says. torch's `gelsy` leaves them out",
          lambda d: d.operator in ("linalg.lstsq", "linalg.lstsq (grad_oriented)")
          and (d.kind == "shape" and d.torch == "(0,)" or d.way == "out=, strided" and "`out` must grow" in d.ampc)),
    Known("linear_cross_entropy: in 16 bits a loss near 0 differs from float64's by the rounding of the logits, in both libraries",
          lambda d: d.operator.startswith("nn.functional.linear_cross_entropy") and d.kind == "value" and d.dtype in ("bfloat16", "float16") and near(0, 2 ** -6)(d)),
    Known("scaled_dot_product_attention: where one score outweighs all others, gradients of queries and keys are what is left of differences",
          lambda d: d.operator == "nn.functional.scaled_dot_product_attention" and d.way.endswith("gradient") and d.dtype == "float64" and near(0, 1e-13)(d)),
]


def explained(d: Difference) -> Optional[str]:
    return next((k.reason for k in KNOWN if k.holds(d)), None)


def still_open() -> Set[str]:
    """Entries of the database that differ without a reason: to be mended. Each line of open.txt is one."""
    return set((Path(__file__).parent / "open.txt").read_text().split("\n")) - {""}
