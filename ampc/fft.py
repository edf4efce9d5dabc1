"""What torch.fft has that is real: frequencies, and the order in which transforms give them. The transforms need complex tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

from . import _C, _ops
from ._C import Tensor, dtype
from ._names.missing import absent_from
from ._tensor import creation as _creation
from ._tensor.device import number_of

__all__ = ["fftfreq", "fftshift", "ifftshift", "rfftfreq"]

Dims = Optional[Union[int, Sequence[int]]]
Dtype = dtype  # the parameter of that name hides it


def fftfreq(n: int, d: float = 1.0, *, out: Optional[Tensor] = None, dtype: Optional[Dtype] = None, layout: Any = None, device: Any = None,
            requires_grad: bool = False) -> Tensor:
    """The frequencies of a transform of ``n`` samples that lie ``d`` apart, in cycles for each unit of ``d``: 0, 1, ... and then the negative
    ones, over ``n * d``. Shape [n], of the default dtype unless ``dtype`` is given (torch.fft.fftfreq). Raises RuntimeError
    for n below 0, TypeError for what is no int."""
    half = _length(n, "fftfreq") // 2
    return _over(_ops.roll(_creation.arange(-half, n - half), -half, 0), n * d, out, dtype, layout, device, requires_grad)


def rfftfreq(n: int, d: float = 1.0, *, out: Optional[Tensor] = None, dtype: Optional[Dtype] = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False) -> Tensor:
    """Those of ``fftfreq`` from 0 up, which are all that the transform of a real signal needs. Shape [n // 2 + 1] (torch.fft.rfftfreq)."""
    return _over(_creation.arange(_length(n, "rfftfreq") // 2 + 1), n * d, out, dtype, layout, device, requires_grad)


def _length(n: int, what: str) -> int:
    if not isinstance(n, int):
        raise TypeError(f"{what}: `n`, the number of samples, must be an int, got {type(n).__name__}")
    if n < 0:
        raise RuntimeError(f"{what}: the number of samples must be 0 or more, got {n}")
    return n


def _over(counts: Tensor, span: float, out: Optional[Tensor], dtype: Optional[Dtype], layout: Any, device: Any, requires_grad: bool) -> Tensor:
    number_of(device, layout)  # which raises for a wrong one
    made = _ops.div(counts.double(), float(span)).to(device, dtype or _C.get_default_dtype())
    return _creation.finish(made, requires_grad, out)


def fftshift(input: Tensor, dim: Dims = None) -> Tensor:
    """Moves frequency 0 from the first place of ``dim`` (an int, several, or None: all) to the middle one (torch.fft.fftshift)."""
    dims = _dims(input, dim)
    return _ops.roll(input, [input.size(d) // 2 for d in dims], dims) if dims else input.clone()


def ifftshift(input: Tensor, dim: Dims = None) -> Tensor:
    """Undoes ``fftshift`` (torch.fft.ifftshift)."""
    dims = _dims(input, dim)
    return _ops.roll(input, [(input.size(d) + 1) // 2 for d in dims], dims) if dims else input.clone()


def _dims(input: Tensor, dim: Dims) -> Sequence[int]:
    if not isinstance(input, Tensor):
        raise TypeError(f"fftshift: `input` must be a Tensor, got {type(input).__name__}")
    return list(range(input.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)


__getattr__ = absent_from(__name__)
