"""torch.nn.attention.bias: causal masks whose triangle starts in the upper left or ends in the lower right corner."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence, Tuple

from ... import _C
from ..._C import Tensor
from ..._C import bool as bool_
from ..._messages.callers import warn
from ..._names.missing import absent_from
from ..._tensor import creation as make
from ..functional import scaled_dot_product_attention

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(IntEnum):
    """The corner of the scores that the triangle of a causal mask lies against."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """A bool tensor [seq_len_q, seq_len_kv], True where a query sees a key: the mask of ``scaled_dot_product_attention``, which reads no mask
    where ``is_causal`` says the same. UPPER_LEFT: query i sees the keys to i. LOWER_RIGHT: the last query sees all keys, the one before it all
    but the last; a UserWarning where the first queries see none. AssertionError if ``variant`` is no CausalVariant."""

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"CausalBias: `variant` must be a CausalVariant, got {type(variant).__name__}")
        return _C._make_subclass(cls, _mask(variant, seq_len_q, seq_len_kv), False)

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        self.variant, self.seq_len_q, self.seq_len_kv = variant, seq_len_q, seq_len_kv
        if seq_len_q > seq_len_kv and variant == CausalVariant.LOWER_RIGHT:
            warn(f"CausalBias: with {seq_len_q} queries and {seq_len_kv} keys, the first {seq_len_q - seq_len_kv} queries see no key")

    @classmethod
    def __torch_function__(cls, func: Any, types: Sequence[type], args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None) -> Any:
        if func is scaled_dot_product_attention:
            return _attend(*args, **(kwargs or {}))
        with _C.DisableTorchFunctionSubclass():  # what else is computed from a mask is a tensor like any other
            return func(*args, **(kwargs or {}))

    def _materialize(self, device: Any = None) -> Tensor:
        """The mask as a tensor like any other, on ``device``, the CPU by default."""
        return _mask(self.variant, self.seq_len_q, self.seq_len_kv, device)

    def __repr__(self) -> str:  # type: ignore[override]
        return repr(self._materialize())


def _mask(variant: CausalVariant, queries: int, keys: int, device: Any = None) -> Tensor:
    last = keys - queries if variant == CausalVariant.LOWER_RIGHT else 0
    return make.ones(queries, keys, dtype=bool_, device=device or "cpu").tril(last)


def _attend(query: Tensor, key: Tensor, value: Tensor, attn_mask: CausalBias, dropout_p: float = 0.0, is_causal: bool = False,
            **options: Any) -> Tensor:
    """Attention under a CausalBias."""
    if is_causal:
        raise ValueError("scaled_dot_product_attention: give a CausalBias or is_causal=True, not both")
    if attn_mask.variant == CausalVariant.UPPER_LEFT or attn_mask.seq_len_q == attn_mask.seq_len_kv:
        return scaled_dot_product_attention(query, key, value, None, dropout_p, True, **options)
    return scaled_dot_product_attention(query, key, value, attn_mask._materialize(query.device), dropout_p, **options)


def causal_upper_left(*size: int) -> CausalBias:
    """The CausalBias for (queries, keys) that ``is_causal`` stands for, too. AssertionError unless two sizes are given."""
    return CausalBias(CausalVariant.UPPER_LEFT, *_two("causal_upper_left", size))


def causal_lower_right(*size: int) -> CausalBias:
    """The CausalBias for (queries, keys) whose last query sees all keys, as where keys of earlier tokens are kept. AssertionError unless two sizes
    are given."""
    return CausalBias(CausalVariant.LOWER_RIGHT, *_two("causal_lower_right", size))


def _two(what: str, size: Tuple[int, ...]) -> Tuple[int, ...]:
    if len(size) != 2:
        raise AssertionError(f"{what}: expected two sizes, of the queries and of the keys, got {len(size)}")
    return size


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
