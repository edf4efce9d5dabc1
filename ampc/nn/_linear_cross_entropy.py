"""Cross entropy of linear logits, whole or some rows at a time, so that they need never exist together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional, Tuple

from .. import _C, _ops
from .._C import Tensor
from .._messages import checks as _checks
from .._messages.callers import warn
from ..amp import autocast
from ..autograd import Function, enable_grad, grad
from ..autograd.function import once_differentiable

__all__ = ["linear_cross_entropy"]



class LinearCrossEntropyOptions:
    """How many rows of logits `linear_cross_entropy` makes at a time: ``batch_chunk_size``, or by ``chunking_method``.

    Args:
        chunking_method: 'aspect_ratio': about as many logits as the input has values; 'aspect_ratio:N': one N-th of that; 'auto' is
            'aspect_ratio:2', or with ``batch_chunk_size`` None.
        allow_retain_graph, acc_policy, acc_dtype: torch's, checked; logits are made again in backward, so it can run twice, and losses
            are float32."""

    def __init__(self, allow_retain_graph: bool = False, batch_chunk_size: Optional[int] = None, chunking_method: Optional[str] = "auto",
                 acc_policy: str = "auto", acc_dtype: Any = None) -> None:
        name, colon, factor = (chunking_method or "auto").partition(":")
        if (name, colon) != ("auto", "") and not (name == "aspect_ratio" and (not colon or factor.isdigit() and int(factor) > 0)):
            raise ValueError("LinearCrossEntropyOptions: `chunking_method` must be None, 'auto', 'aspect_ratio' or 'aspect_ratio:N', got "
                             f"{chunking_method!r}")
        if acc_policy not in ("auto", "accurate", "balanced", "compact"):
            raise ValueError(f"LinearCrossEntropyOptions: `acc_policy` must be auto, accurate, balanced or compact, got {acc_policy!r}")
        if batch_chunk_size is not None and not (isinstance(batch_chunk_size, int) and batch_chunk_size > 0):
            raise ValueError(f"LinearCrossEntropyOptions: `batch_chunk_size` must be None or above 0, got {batch_chunk_size!r}")
        if acc_dtype is not None and not (isinstance(acc_dtype, _C.dtype) and acc_dtype.is_floating_point):
            raise ValueError(f"LinearCrossEntropyOptions: `acc_dtype` must be None or a floating point dtype, got {acc_dtype!r}")
        self.allow_retain_graph, self.batch_chunk_size, self.chunking_method = allow_retain_graph, batch_chunk_size, chunking_method
        self.acc_policy, self.acc_dtype = acc_policy, acc_dtype

    def __repr__(self) -> str:
        return f"LinearCrossEntropyOptions({', '.join(f'{k}={v!r}' for k, v in self.__dict__.items())})"


def _rows(options: Any, n: int, features: int, classes: int) -> int:
    """How many rows of the n are made at a time."""
    size, method = options.batch_chunk_size, options.chunking_method
    if method == "auto":
        method = "aspect_ratio:2" if size is None else None
    if method is None:
        return n if size is None else min(size, n)
    fraction = -(-n // max(-(-classes // max(features, 1)), 1))
    found = max(1, min((1 << (fraction - 1).bit_length()) // int(method.partition(":")[2] or 1), n))
    if size is not None and min(size, n) != found:
        raise ValueError(f"linear_cross_entropy: `batch_chunk_size` {size} and `chunking_method` {method!r}, which makes it {found}, differ; "
                         "give one")
    return found


class _InParts(Function):
    """The loss of each row. Backward makes the logits again, some rows at a time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Optional[Tensor], target: Tensor, more: Tuple[Any, ...], rows: int) -> Tensor:
        device = "cuda" if x.is_cuda else "cpu"
        ctx.region = autocast(device, dtype=_C.get_autocast_dtype(device), enabled=_C._is_autocast_enabled(device))
        ctx.save_for_backward(x, weight, bias, target)
        ctx.more, ctx.rows = more, rows
        return _ops.cat([_ops.cross_entropy(_ops.linear(part, weight, bias), t, *more) for part, t in _parts(rows, x, target)], 0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tuple[Optional[Tensor], ...]:
        x, weight, bias, target = ctx.saved_tensors
        wants = ctx.needs_input_grad[:3]
        dx, totals = [], [None, None]
        w: Any = weight.detach().requires_grad_(wants[1])
        b: Any = bias if bias is None else bias.detach().requires_grad_(wants[2])
        for part, t, dy in _parts(ctx.rows, x, target, g):
            part = part.detach().requires_grad_(wants[0])
            with enable_grad(), ctx.region:
                loss = _ops.cross_entropy(_ops.linear(part, w, b), t, *ctx.more)
            leaves: Any = [leaf for leaf, wanted in zip((part, w, b), wants) if wanted]
            found = iter(grad(loss, leaves, dy))
            dx += [next(found)] if wants[0] else []
            totals = [(next(found) if total is None else total.add_(next(found))) if wanted else None for total, wanted in zip(totals, wants[1:])]
        return _ops.cat(dx, 0) if wants[0] else None, *totals, None, None, None


def _parts(rows: int, *tensors: Tensor) -> Iterator[Tuple[Tensor, ...]]:
    return zip(*(t.split(rows) for t in tensors))


def _chunked(x: Tensor, weight: Tensor, target: Tensor, bias: Optional[Tensor], class_weight: Optional[Tensor], reduction: str, ignored: int,
             options: Any) -> Tensor:
    single = x.ndim == 1
    x, target = (x.unsqueeze(0), target.unsqueeze(0)) if single else (x, target)
    rows = _rows(options, x.shape[0], x.shape[1], weight.shape[0])
    losses = _InParts.apply(x, weight, bias, target, (class_weight, None, ignored, None, "none"), rows)
    if reduction == "none":
        return losses.squeeze(0) if single else losses
    if reduction == "sum":
        return losses.sum()
    counts = target != ignored
    total = counts.sum() if class_weight is None else _ops.where(counts, class_weight[_ops.where(counts, target, 0)], 0.0).sum()
    return losses.sum() / total


def linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Optional[Tensor] = None,
                         weight: Optional[Tensor] = None, reduction: str = "mean", ignore_index: Optional[int] = None,
                         label_smoothing: float = 0.0, options: Any = None) -> Tensor:
    """Cross entropy of the logits linear(input, linear_weight, linear_bias).

    Args:
        input: [in] or [N, in].
        linear_weight: [classes, in], or [classes, ..., in] for targets [N, ...].
        options: nn.LinearCrossEntropyOptions: the logits are made some rows at a time, and again in backward. None: they are whole, as they
            are (with a UserWarning) for probabilities, label smoothing and targets [N, ...]."""
    wide = linear_weight.shape[1:-1]
    if input.ndim not in (1, 2) or linear_weight.ndim < 2 or input.shape[-1] != linear_weight.shape[-1] or wide and input.ndim == 1:
        raise RuntimeError(f"linear_cross_entropy: input {list(input.shape)} must be [in] or [N, in], and linear_weight "
                           f"{list(linear_weight.shape)} [classes, in], or for [N, in] also [classes, ..., in]")
    if linear_bias is not None and linear_bias.shape != linear_weight.shape[:-1]:
        raise RuntimeError(f"linear_cross_entropy: linear_bias {list(linear_bias.shape)} does not fit linear_weight {list(linear_weight.shape)}")
    shape = (*input.shape[:-1], *linear_weight.shape[:-1])
    if ignore_index is not None and target.shape == shape:
        raise RuntimeError("linear_cross_entropy: `ignore_index` goes with class indices, not with probabilities")
    ignored = -100 if ignore_index is None else ignore_index
    if options is not None:
        if reduction in ("none", "mean", "sum") and not label_smoothing and target.dtype is _C.int64 and not wide:
            if input.ndim == 1 or input.shape[0]:
                return _chunked(input, linear_weight, target, linear_bias, weight, reduction, ignored, options)
        else:
            warn("linear_cross_entropy: the logits are whole: `options` go with class indices [N] or [], and without label_smoothing")
    bias = None if linear_bias is None else linear_bias.flatten()
    logits = _ops.linear(input, linear_weight.flatten(0, -2), bias).reshape(shape)
    return _ops.cross_entropy(logits, target, weight, None, ignored, None, reduction, label_smoothing)


_checks.install(globals())
