"""What distributions share: arguments of one shape, probabilities and logits of each other, vectors and triangles."""

from __future__ import annotations

import math
from typing import Any, Callable, Tuple

from .._C import Tensor
from .._composed.shape_ops import broadcast_tensors
from .._tensor import creation as make
from .._tensor.finfo import finfo
from ..autograd import enable_grad
from ..nn import functional as F

__all__ = ["broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec", "vec_to_tril_matrix"]

euler_constant = 0.57721566490153286060
LOG_2PI = math.log(2 * math.pi)


def broadcast_all(*values: Any) -> Tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape; numbers take the dtype and device of the first tensor. ValueError for other types."""
    like = next((v for v in values if isinstance(v, Tensor)), None)
    dtype, device = (None, None) if like is None else (like.dtype, like.device)
    for v in values:
        if not isinstance(v, (Tensor, int, float)):
            raise ValueError(f"expected numbers or Tensors, got {type(v).__name__}")
    tensors = [v if isinstance(v, Tensor) else make.tensor(float(v), dtype=dtype, device=device) for v in values]
    return tuple(broadcast_tensors(*tensors))


def clamp_probs(probs: Tensor) -> Tensor:
    """Away from 0 and 1, where logarithms end."""
    eps = float(finfo(probs.dtype).eps)
    return probs.clamp(eps, 1 - eps)


def inside_unit(y: Tensor) -> Tensor:
    """Above 0 by the smallest normal number, and below 1 by its rounding."""
    limits = finfo(y.dtype)
    return y.clamp(limits.tiny, 1 - limits.eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log-odds of binary probabilities, else logarithms."""
    inner = clamp_probs(probs)
    return inner.log() - (-inner).log1p() if is_binary else inner.log()


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """sigmoid of binary logits, else softmax over the last dimension."""
    return logits.sigmoid() if is_binary else F.softmax(logits, -1)


class lazy_property:
    """A method whose value is computed when it is first asked for, with gradients, and kept in the instance."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        instance.__dict__[self.wrapped.__name__] = value
        return value


def sum_rightmost(value: Tensor, dims: int) -> Tensor:
    """Added up over the last ``dims`` dimensions."""
    return value.sum(tuple(range(-dims, 0))) if dims else value


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Tensor:
    """Draws of the standard normal distribution. Not public in torch, but other packages draw by it."""
    return make.randn(shape, dtype=dtype, device=device)


_sum_rightmost = sum_rightmost


def moment_above(bound: float, parameter: Tensor, moment: Callable[[Tensor], Tensor], otherwise: float) -> Tensor:
    """moment(parameter) where the parameter is above ``bound``; ``otherwise`` elsewhere, where the gradient is 0."""
    absent = parameter <= bound
    return moment(parameter.masked_fill(absent, bound + 1)).masked_fill(absent, otherwise)


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """[..., D] as [..., n, n], D values of a lower triangle up to the diagonal ``diag``, row by row; 0 above."""
    count = vec.shape[-1]
    n = (-(1 + 2 * diag) + math.isqrt((1 + 2 * diag) ** 2 + 8 * count + 4 * abs(diag) * (diag + 1))) // 2
    if int(make.ones(n, n).tril(diag).sum().item()) != count:
        raise ValueError(f"vec_to_tril_matrix: {count} values do not fill a lower triangle up to the diagonal {diag}")
    rows, columns = _triangle(n, diag, vec)
    out = vec.new_zeros((*vec.shape[:-1], n, n))
    out[..., rows, columns] = vec
    return out


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The values of [..., n, n] in its lower triangle up to the diagonal ``diag``, row by row: [..., D]."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"tril_matrix_to_vec: the diagonal {diag} is not in [{-n}, {n - 1}]")
    rows, columns = _triangle(n, diag, mat)
    return mat[..., rows, columns]


def _triangle(n: int, diag: int, like: Tensor) -> Tuple[Tensor, Tensor]:
    at = make.arange(n, device=like.device)
    where = (at.unsqueeze(0) <= at.unsqueeze(1) + diag).nonzero()
    return where[:, 0], where[:, 1]
