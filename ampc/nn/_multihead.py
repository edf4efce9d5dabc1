"""Attention of several heads as a function (Vaswani et al. 2017). nn.MultiheadAttention is this with weights of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Optional, Tuple, Union

from .. import _C, _ops
from .._C import Tensor
from .._messages import checks as _checks
from .._tensor import creation as make
from ._resample import pad

__all__ = ["multi_head_attention_forward"]

_Masks = Tuple[Optional[Tensor], Optional[Tensor]]  # of the scores, and of the keys


def as_bias(mask: Optional[Tensor], what: str, dtype: Any) -> Optional[Tensor]:
    """A mask that is added to the scores: -inf where a bool one is True, which leaves a key out."""
    if mask is None or mask.is_floating_point():
        return mask
    if mask.dtype is not _C.bool:
        raise TypeError(f"{what} must be bool (True leaves a key out) or floating point, got {mask.dtype}")
    return make.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, float("-inf"))


def _projected(query: Tensor, key: Tensor, value: Tensor, weights: Union[Tensor, Sequence[Tensor]], bias: Optional[Tensor]) -> Sequence[Tensor]:
    """By one matrix for all three, or by three."""
    linear = _ops.linear
    if isinstance(weights, Tensor):
        if query is key is value:
            return linear(query, weights, bias).chunk(3, -1)
        weights = weights.chunk(3)
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return [linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases)]


def _joined(masks: _Masks, n: int, heads: int, length: int, keys: int, dtype: Any) -> Optional[Tensor]:
    """Both masks as one that is added to scores [N, heads, L, S]."""
    mask, padding = as_bias(masks[0], "attn_mask", dtype), as_bias(masks[1], "key_padding_mask", dtype)
    if mask is not None:
        if tuple(mask.shape) not in ((length, keys), (n * heads, length, keys)):
            wrong = RuntimeError if mask.ndim in (2, 3) else AssertionError
            raise wrong(f"MultiheadAttention: `attn_mask` must be {[length, keys]} or {[n * heads, length, keys]}, got {list(mask.shape)}")
        mask = mask.view(1, 1, length, keys) if mask.ndim == 2 else mask.view(n, heads, length, keys)
    if padding is not None:
        if tuple(padding.shape) != (n, keys):
            raise AssertionError(f"MultiheadAttention: `key_padding_mask` must be {[n, keys]}, got {list(padding.shape)}")
        padding = padding.view(n, 1, 1, keys)
        mask = padding if mask is None else mask + padding
    return mask


def _in_heads(x: Tensor, heads: int) -> Tensor:
    """[N, L, E] to [N, heads, L, E / heads]."""
    return x.view(x.shape[0], x.shape[1], heads, x.shape[2] // heads).transpose(1, 2)


def _static(x: Tensor, n: int, heads: int, width: int, name: str) -> Tensor:
    """Keys or values that are projected already, [N heads, S, E / heads], as [N, heads, S, E / heads]."""
    if x.ndim != 3 or x.shape[0] != n * heads or x.shape[2] != width:
        raise AssertionError(f"MultiheadAttention: `{name}` must be [{n * heads}, S, {width}], got {list(x.shape)}")
    return x.view(n, heads, x.shape[1], width)


def _scored(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], drop: float, average: bool) -> Tuple[Tensor, Tensor]:
    """The result of the heads, and the weights."""
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    weights = _ops.dropout(_ops.softmax(scores if mask is None else scores + mask, -1), drop, drop > 0)
    return weights.to(v.dtype) @ v, weights.mean(1) if average else weights


def _check(query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, separate: bool, masked: bool, is_causal: bool) -> None:
    if query.ndim not in (2, 3) or key.ndim != query.ndim or value.ndim != query.ndim:
        raise AssertionError("MultiheadAttention: query, key and value must all have 2 or 3 dimensions, got "
                             f"{query.ndim}, {key.ndim} and {value.ndim}")
    if is_causal and not masked:
        raise RuntimeError("MultiheadAttention: is_causal=True is a hint that goes with `attn_mask`; give that, too")
    if query.shape[-1] != width:
        raise AssertionError(f"MultiheadAttention: expected a width of {width}, got shape {list(query.shape)}")
    if width % heads:
        raise AssertionError(f"MultiheadAttention: {heads} heads do not divide a width of {width}")
    if key.shape[:-1] != value.shape[:-1] or not separate and key.shape != value.shape:
        raise AssertionError(f"MultiheadAttention: key {list(key.shape)} and value {list(value.shape)} do not fit")


def attended(query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, weights: Union[Tensor, Sequence[Tensor]], bias: Optional[Tensor],
             more: _Masks, zeros: bool, drop: float, project: Callable[[Tensor], Tensor], masks: _Masks, need_weights: bool, average: bool,
             is_causal: bool, batch_first: bool, static: _Masks = (None, None)) -> Tuple[Tensor, Optional[Tensor]]:
    """The result and the weights. ``more`` is a key and a value that are added, as ``zeros`` adds some of zeros; ``project`` the last linear
    map; ``static`` the keys and values that stand in place of the projected ones."""
    _check(query, key, value, width, heads, not isinstance(weights, Tensor), masks[0] is not None, is_causal)
    single, (mask, padding) = query.ndim == 2, masks
    q, k, v = _projected(query, key, value, weights, bias)
    if single:
        q, k, v = q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
        padding = None if padding is None else padding.unsqueeze(0)
    elif not batch_first:
        q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
    n, cat = q.shape[0], _ops.cat
    keys, added = k.shape[1] if static[0] is None else static[0].shape[1], 0
    if more[0] is not None and more[1] is not None:
        if static != (None, None):
            raise AssertionError("MultiheadAttention: a bias cannot be added to static keys and values")
        k, v, added = *(cat([x, extra.to(x.dtype).expand(n, 1, width)], 1) for x, extra in ((k, more[0]), (v, more[1]))), 1
    q, k, v = (_in_heads(x, heads) if s is None else _static(s, n, heads, width // heads, name)
               for x, s, name in ((q, None, ""), (k, static[0], "static_k"), (v, static[1], "static_v")))
    if zeros:
        k, v, added = *(cat([x, make.zeros(n, heads, 1, width // heads, dtype=x.dtype, device=x.device)], 2) for x in (k, v)), added + 1
    joined = _joined((mask, padding), n, heads, q.shape[2], keys, q.dtype)
    joined = pad(joined, (0, added)) if joined is not None and added else joined  # keys that were added are always seen
    out, shown = (_scored(q, k, v, joined, drop, average) if need_weights
                  else (_ops.scaled_dot_product_attention(q, k, v, joined, drop), None))
    if single:
        return project(out.transpose(1, 2).reshape(q.shape[2], width)), None if shown is None else shown.squeeze(0)
    steps = q.shape[2]
    return project(out.transpose(1, 2).reshape(n, steps, width) if batch_first else out.permute(2, 0, 1, 3).reshape(steps, n, width)), shown


def multi_head_attention_forward(
        query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, in_proj_weight: Optional[Tensor],
        in_proj_bias: Optional[Tensor], bias_k: Optional[Tensor], bias_v: Optional[Tensor], add_zero_attn: bool, dropout_p: float,
        out_proj_weight: Tensor, out_proj_bias: Optional[Tensor], training: bool = True, key_padding_mask: Optional[Tensor] = None,
        need_weights: bool = True, attn_mask: Optional[Tensor] = None, use_separate_proj_weight: bool = False,
        q_proj_weight: Optional[Tensor] = None, k_proj_weight: Optional[Tensor] = None, v_proj_weight: Optional[Tensor] = None,
        static_k: Optional[Tensor] = None, static_v: Optional[Tensor] = None, average_attn_weights: bool = True,
        is_causal: bool = False) -> Tuple[Tensor, Optional[Tensor]]:
    """nn.MultiheadAttention's result and weights, by weights that are given; query, key and value are [L, N, E] or [L, E].

    Args:
        embed_dim_to_check: the width E, which must be query's.
        in_proj_weight: [3 E, E] for all three, or with ``use_separate_proj_weight`` one each in ``q_proj_weight`` and so on.
        bias_k, bias_v: a key and a value that are added. add_zero_attn: one of zeros, too.
        static_k, static_v: [N heads, S, E / heads] in place of the projected keys and values."""
    weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight
    if weights is None or isinstance(weights, tuple) and None in weights:
        raise AssertionError("multi_head_attention_forward: the weights of the projections are missing: in_proj_weight, or with "
                             "use_separate_proj_weight q_proj_weight, k_proj_weight and v_proj_weight")
    return attended(query, key, value, embed_dim_to_check, num_heads, weights, in_proj_bias, (bias_k, bias_v), add_zero_attn,
                    dropout_p if training else 0.0, lambda x: _ops.linear(x, out_proj_weight, out_proj_bias), (attn_mask, key_padding_mask),
                    need_weights, average_attn_weights, is_causal, False, (static_k, static_v))


_checks.install(globals())
