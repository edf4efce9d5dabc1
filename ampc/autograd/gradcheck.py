"""Compares gradients with finite differences, in float64."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable, Optional

from .. import _C
from .._C import Tensor
from .._tensor.creation import arange, zeros_like
from .engine import grad
from .grad_mode import enable_grad


class GradcheckError(RuntimeError):
    """Analytical and numerical gradients differ."""


def _tensors(out: Any) -> tuple:
    return tuple(o for o in ((out,) if isinstance(out, Tensor) else out) if isinstance(o, Tensor) and o.is_floating_point())


def _numerical(f: Callable, inputs: Sequence[Any], x: Tensor, directions: Iterable[Tensor], weights: Sequence[Tensor], eps: float) -> list:
    """The slope of sum(weights * f) at x along each of the directions, by central differences."""
    values = x.detach()
    before, slopes = values.clone(), []
    for direction in directions:
        ends = []
        for h in (eps, -eps):
            values.copy_(before + h * direction)
            ends.append(sum((w * o.detach()).sum().item() for w, o in zip(weights, _tensors(f(*inputs)))))
        values.copy_(before)
        slopes.append((ends[0] - ends[1]) / (2 * eps))
    return slopes


def _each_element(x: Tensor) -> Iterator[Tensor]:
    for i in range(x.numel()):
        direction = zeros_like(x.detach()).contiguous()
        direction.view(-1)[i] = 1.0
        yield direction


def _check_backward_alone(name: str, forward: bool, backward: bool, batched: bool) -> None:
    """AssertionError where nothing is to be checked; NotImplementedError for what is not differentiated forward, nor in batches."""
    if not (forward or backward):
        raise AssertionError(f"{name}: nothing is to be checked, neither forward nor backward")
    if forward or batched:
        raise NotImplementedError(f"{name}: backward is checked, one gradient at a time; forward differentiation and batches are not")


def gradcheck(func: Callable, inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True,
              nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False, check_batched_grad: bool = False,
              check_batched_forward_grad: bool = False, check_forward_ad: bool = False, check_backward_ad: bool = True, fast_mode: bool = False,
              masked: Optional[bool] = None) -> bool:
    """True when backward agrees with central differences for every float64 input that requires gradients.

    The outputs are weighted with fixed numbers, so one scalar stands for all. GradcheckError (or False,
    unless ``raise_exception``) when |analytical - numerical| > atol + rtol * |numerical| somewhere, or when two
    backwards differ by more than ``nondet_tol``. ``fast_mode`` compares one slope of each input, along a fixed direction.
    NotImplementedError for the checks of forward differentiation and of batched gradients, which there are not.
    """
    _check_backward_alone("gradcheck", check_forward_ad, check_backward_ad, check_batched_grad or check_batched_forward_grad)
    args = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    wanted = [x for x in args if isinstance(x, Tensor) and x.requires_grad]
    if not wanted or any(x.dtype != _C.float64 for x in wanted):
        raise ValueError("gradcheck: needs float64 inputs with requires_grad=True")
    outs = _tensors(func(*args))
    weights = [_weights(o, k) for k, o in enumerate(outs)]
    total = sum(((w * o).sum() for w, o in zip(weights, outs)), start=outs[0].sum() * 0)
    # a function without slope may not be recorded at all: its gradient is 0
    found, again = ((grad(total, wanted, retain_graph=True, materialize_grads=True) if total.requires_grad else [zeros_like(x) for x in wanted])
                    for _ in range(2))
    problem = None
    for k, (x, g, other) in enumerate(zip(wanted, found, again)):
        if x.numel() and (g - other).abs().max().item() > nondet_tol:
            problem = problem or f"input {k}: two backwards differ by {(g - other).abs().max().item():.3g}, and `nondet_tol` is {nondet_tol}"
        slant = _weights(x.detach(), k)
        slant /= slant.norm()  # of length 1, so that no element moves by more than eps
        got = [(g * slant).sum().item()] if fast_mode else g.reshape(-1).tolist()
        want = _numerical(func, args, x, [slant] if fast_mode else _each_element(x), weights, eps)
        for i, (a, n) in enumerate(zip(got, want)):
            if not abs(a - n) <= atol + rtol * abs(n):
                problem = problem or f"input {k}, element {i}: backward gives {a:.12g}, finite differences {n:.12g}"
    if problem is not None and raise_exception:
        raise GradcheckError(problem)
    return problem is None


def _weights(o: Tensor, k: int) -> Tensor:
    """Fixed numbers in [0.5, 1.5), different for every element."""
    n = arange(o.numel(), dtype=_C.float64, device=o.device)
    return ((n + k + 1) * 0.6180339887498949 % 1.0 + 0.5).view(o.shape)


def gradgradcheck(func: Callable, inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
                  gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True, nondet_tol: float = 0.0,
                  check_undefined_grad: bool = True, check_grad_dtypes: bool = False, check_batched_grad: bool = False,
                  check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True, fast_mode: bool = False, masked: bool = False) -> bool:
    """gradcheck of the gradient itself: backward of backward against finite differences of backward. ``grad_outputs`` weigh the outputs."""
    _check_backward_alone("gradgradcheck", check_fwd_over_rev, check_rev_over_rev, check_batched_grad)
    args = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    slots = [i for i, x in enumerate(args) if isinstance(x, Tensor) and x.requires_grad]
    outs = _tensors(func(*args))
    given = [_weights(o, k) for k, o in enumerate(outs)] if grad_outputs is None else [g.detach() for g in _tensors(grad_outputs)]
    weights = [g.requires_grad_() for g in given]

    def first(*values: Any) -> tuple:
        with enable_grad():
            call = list(args)
            for i, v in zip(slots, values[: len(slots)]):
                call[i] = v if v.requires_grad else v.detach().requires_grad_()
            ys = _tensors(func(*call))
            total = sum(((w * y).sum() for w, y in zip(values[len(slots):], ys)), start=ys[0].sum() * 0)
            return grad(total, [call[i] for i in slots], create_graph=True, materialize_grads=True)

    every = tuple(args[i] for i in slots) + tuple(weights)
    return gradcheck(first, every, eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, nondet_tol=nondet_tol, fast_mode=fast_mode)
