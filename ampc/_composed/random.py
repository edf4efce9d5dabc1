"""Functions that choose at random."""

from __future__ import annotations

import contextlib
from typing import Any, Optional

from .. import _C, _checks, _ops
from .. import _creation as make
from .._C import Tensor
from .._out import takes_out, written

__all__ = ["bernoulli", "multinomial", "normal", "poisson"]
METHODS = ["bernoulli", "multinomial", "exponential_", "cauchy_", "log_normal_", "geometric_"]


def _stream(generator: Any) -> Any:
    return contextlib.nullcontext() if generator is None else generator


def bernoulli(input: Tensor, p: Any = None, *, generator: Any = None, out: Optional[Tensor] = None) -> Tensor:
    """1 with the probability that each element gives (or ``p``), else 0; its gradient is 0. RuntimeError outside [0, 1]."""
    chance = input if p is None else make.full_like(input, p)
    if bool(((chance < 0) | (chance > 1) | chance.isnan()).any()):
        raise RuntimeError("bernoulli: probabilities must lie in [0, 1]")
    with _stream(generator):
        drawn = (make.rand(chance.shape, dtype=_C.float32, device=chance.device) < chance.float()).to(input.dtype if out is None else out.dtype)
    if out is None and input.requires_grad and _C.is_grad_enabled():
        return _ops.where(make.ones((), dtype=_C.bool, device=input.device), drawn, input)
    return written(drawn, out, "bernoulli")


@takes_out
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None, out: Optional[Tensor] = None) -> Tensor:
    """Indices drawn from each row with the probabilities (up to a factor) that its values are: int64 [..., num_samples]."""
    with _stream(generator):
        return _ops._multinomial(input, num_samples, replacement)


def normal(mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None, dtype: Any = None, device: Any = None,
           out: Optional[Tensor] = None) -> Tensor:
    """Normal numbers with ``mean`` and ``std``, numbers (with a ``size``) or tensors that broadcast."""
    if isinstance(out, Tensor) and not out.is_floating_point():
        raise NotImplementedError(f"normal: `out` must be floating point, got {out.dtype}")
    return written(_normal(mean, std, size, generator, dtype, device), out, "normal")


def _normal(mean: Any, std: Any, size: Any, generator: Any, dtype: Any, device: Any) -> Tensor:
    tensors = [t for t in (mean, std) if isinstance(t, Tensor)]
    with _stream(generator):
        if not tensors:
            if size is None:
                raise TypeError("normal: give `size` when mean and std are numbers")
            return make.empty(*size, dtype=dtype, device=device).normal_(mean, std)
        if isinstance(std, Tensor) and bool((std < 0).any()):
            raise RuntimeError("normal: `std` must be 0 or more")
        shape = (tensors[0] + tensors[-1]).shape
        return make.randn(shape, dtype=tensors[0].dtype, device=tensors[0].device) * std + mean


def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Poisson's numbers with the rates that the elements are, drawn one by one on the CPU."""
    import numpy as np

    if bool((input < 0).any()):
        raise RuntimeError("poisson: rates must be 0 or more")
    with _stream(generator):
        seed = make.randint(0, 2**62, (1,), dtype=_C.int64, device="cpu").item()
    drawn = np.random.default_rng(seed).poisson(input.detach().double().numpy(force=True))
    return make.tensor(drawn, dtype=input.dtype, device=input.device)


def _uniform(self: Tensor) -> Tensor:
    return make.rand(self.shape, dtype=_C.float64, device=self.device).clamp(min=1e-300)


def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Filled with waiting times of rate ``lambd``."""
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
    """Filled from Cauchy's distribution. RuntimeError unless sigma > 0."""
    if not sigma > 0:
        raise RuntimeError(f"cauchy_: `sigma` must be above 0, got {sigma}")
    with _stream(generator):
        return self.copy_((3.141592653589793 * (_uniform(self) - 0.5)).tan() * sigma + median)


def log_normal_(self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> Tensor:
    """Filled with exp of normal numbers. RuntimeError unless std > 0."""
    if not std > 0:
        raise RuntimeError(f"log_normal_: `std` must be above 0, got {std}")
    with _stream(generator):
        return self.copy_((make.randn(self.shape, dtype=_C.float64, device=self.device) * std + mean).exp())


_checks.install(globals())
