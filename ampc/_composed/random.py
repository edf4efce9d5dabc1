"""Functions that choose at random."""

from __future__ import annotations

import contextlib
from typing import Any, Optional

from .. import _C, _ops
from .._C import Tensor
from .._messages import checks as _checks
from .._tensor import creation as make
from .._tensor.dims import broadcast_shapes
from .._tensor.out import written

__all__ = ["bernoulli", "binomial", "multinomial", "normal", "poisson"]
METHODS = ["bernoulli", "multinomial", "exponential_", "cauchy_", "log_normal_", "geometric_"]


def _stream(generator: Any) -> Any:
    return contextlib.nullcontext() if generator is None else generator


def bernoulli(input: Tensor, p: Any = None, *, generator: Any = None, out: Optional[Tensor] = None) -> Tensor:
    """1 with the probability that each element gives (or ``p``), else 0; its gradient is 0. RuntimeError outside [0, 1], and for elements that
    are no floating point numbers; those on a GPU are not looked at, which would be waiting for it."""
    if p is None:
        _need_floats("bernoulli", input)
    make.need_probabilities("bernoulli", "input" if p is None else "p", input if p is None else p)
    with _stream(generator):
        draw = make.rand(input.shape, dtype=_C.float32, device=input.device)
    drawn = (draw < (input.float() if p is None else p)).to(input.dtype if out is None else out.dtype)
    if out is None and input.requires_grad and _C.is_grad_enabled():
        return _ops.where(make.ones((), dtype=_C.bool, device=input.device), drawn, input)
    return written(drawn, out, "bernoulli", quiet=True)


def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None, out: Optional[Tensor] = None) -> Tensor:
    """Indices drawn from each row with the probabilities (up to a factor) that its values are: int64 [..., num_samples]."""
    with _stream(generator):
        return _ops._multinomial(input, num_samples, replacement, out=out)


def normal(mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
           pin_memory: bool = False, requires_grad: bool = False, out: Optional[Tensor] = None) -> Tensor:
    """Normal numbers with ``mean`` and ``std``, numbers (with a ``size``) or tensors that broadcast."""
    if isinstance(out, Tensor) and not out.is_floating_point():
        raise NotImplementedError(f"normal: `out` must be floating point, got {out.dtype}")
    where = out.device if device is None and out is not None else device
    return make.finish(_normal(mean, std, size, generator, dtype, layout, where), requires_grad, out, pin_memory)


def _normal(mean: Any, std: Any, size: Any, generator: Any, dtype: Any, layout: Any, device: Any) -> Tensor:
    tensors = [t for t in (mean, std) if isinstance(t, Tensor)]
    with _stream(generator):
        if not tensors:
            if size is None:
                raise TypeError("normal: give `size` when mean and std are numbers")
            return make.empty(*size, dtype=dtype, layout=layout, device=device).normal_(mean, std)
        if bool((std < 0).any()) if isinstance(std, Tensor) else std < 0:
            raise RuntimeError("normal: `std` must be 0 or more")
        shape = (tensors[0] + tensors[-1]).shape
        return make.randn(shape, dtype=tensors[0].dtype, layout=layout, device=tensors[0].device) * std + mean


def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Poisson's numbers with the rates that the elements are; their gradient is 0. RuntimeError for a rate below 0; those on a GPU are
    not looked at, which would be waiting for it."""
    if not input.is_cuda and bool((input < 0).any()):
        raise RuntimeError("poisson: rates must be 0 or more")
    with _stream(generator):
        return _ops.poisson_draw(input.double(), keys(input.shape, input.device)).to(input.dtype)


def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """How many of ``count`` trials succeed, each with the chance ``prob``; the two broadcast. Their gradient is 0."""
    if not count.is_floating_point() or not prob.is_floating_point():
        raise ValueError(f"binomial: `count` and `prob` must be floating point, got {count.dtype} and {prob.dtype}")
    with _stream(generator):
        shape = broadcast_shapes(tuple(count.shape), tuple(prob.shape))
        return _ops._binomial_draw(count.double(), prob.double().clamp(0, 1), keys(shape, count.device)).to(count.dtype)


def keys(shape: Any, device: Any) -> Tensor:
    """Numbers in [0, 1), float64, each of which decides a draw of ``_ops._binomial_draw`` and the like."""
    return make.rand(tuple(shape), dtype=_C.float64, device=device)


def _uniform(self: Tensor) -> Tensor:
    return make.rand(self.shape, dtype=_C.float64, device=self.device).clamp(min=1e-300)


def _need_floats(name: str, tensor: Tensor) -> None:
    if not tensor.is_floating_point():
        raise NotImplementedError(f"{name}: needs a floating point dtype, got {tensor.dtype}")


def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Filled with waiting times of rate ``lambd``. RuntimeError unless lambd > 0, and for tensors of integers."""
    _need_floats("exponential_", self)
    if not lambd > 0:
        raise RuntimeError(f"exponential_: `lambd` must be above 0, got {lambd}")
    with _stream(generator):
        return self.copy_(-_uniform(self).log() / lambd)


def geometric_(self: Tensor, p: float, *, generator: Any = None) -> Tensor:
    """Filled with how many trials of chance ``p`` it takes."""
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_: `p` must be in (0, 1), got {p}")
    import math
    with _stream(generator):
        return self.copy_((_uniform(self).log() / math.log(1 - p)).ceil())


def cauchy_(self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None) -> Tensor:
    """Filled from Cauchy's distribution. RuntimeError unless sigma > 0, and for tensors of integers."""
    _need_floats("cauchy_", self)
    if not sigma > 0:
        raise RuntimeError(f"cauchy_: `sigma` must be above 0, got {sigma}")
    with _stream(generator):
        return self.copy_((3.141592653589793 * (_uniform(self) - 0.5)).tan() * sigma + median)


def log_normal_(self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> Tensor:
    """Filled with exp of normal numbers. RuntimeError unless std > 0, and for tensors of integers."""
    _need_floats("log_normal_", self)
    if not std > 0:
        raise RuntimeError(f"log_normal_: `std` must be above 0, got {std}")
    with _stream(generator):
        return self.copy_((make.randn(self.shape, dtype=_C.float64, device=self.device) * std + mean).exp())


_checks.install(globals())
