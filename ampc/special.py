"""Special functions under torch.special's names."""

from typing import Any

from . import _checks
from ._C import Tensor, get_default_dtype
from ._composed.elementwise import sinc
from ._ops import erf, erfc, erfinv, exp2, expm1, log1p, logit, logsumexp, round, xlogy
from ._ops import sigmoid as expit
from .nn.functional import log_softmax, softmax

__all__ = ["entr", "erf", "erfc", "erfinv", "exp2", "expit", "expm1", "log1p", "log_softmax", "logit", "logsumexp", "ndtr", "ndtri", "round", "sinc",
           "softmax", "xlog1py", "xlogy"]


def xlog1py(input: Any, other: Tensor) -> Tensor:
    """input * log(1 + other); 0 where input is 0 and other is no nan."""
    if not isinstance(other, Tensor):
        raise TypeError(f"xlog1py: `other` must be a Tensor, got {type(other).__name__}")
    return (input * other.log1p()).masked_fill((input == 0) & (other == other), 0.0)


def entr(input: Tensor) -> Tensor:
    """-x log(x); 0 at 0, -inf below."""
    return (-xlogy(input, input)).masked_fill(input < 0, float("-inf"))


def ndtr(input: Tensor) -> Tensor:
    """The probability that a standard normal value is below x."""
    return 0.5 * erfc(-input * 0.5**0.5)


def ndtri(input: Tensor) -> Tensor:
    """The value that a standard normal one is below with probability x."""
    wide = input.double()  # next to 0 and 1, 2 p - 1 keeps few of float32's digits
    return (2**0.5 * erfinv(2 * wide - 1)).to(input.dtype if input.is_floating_point() else get_default_dtype())


_checks.install(globals())
