"""torch.nn.attention.flex_attention: attention whose scores a function changes, and whose mask a function gives.

The functions are called once, with index tensors that broadcast to [B, H, Q, K], where torch calls them for each element under vmap: the same
for functions that are written for one element. The whole matrix of scores is computed; a BlockMask holds its function, and saves no work."""

from __future__ import annotations

import math
from typing import Any, Callable, NamedTuple, NoReturn, Optional, Tuple, Union

from ... import _ops
from ..._C import Tensor, float32, float64
from ..._C import bool as bool_
from ..._names.missing import absent_from
from ..._tensor import creation as make

__all__ = ["AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention", "noop_mask", "or_masks"]

Mask = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Score = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


class AuxRequest(NamedTuple):
    """Which further results of ``flex_attention`` are wanted."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """Further results of ``flex_attention``, [B, H, Q]; None for what was not asked for."""

    lse: Optional[Tensor] = None
    max_scores: Optional[Tensor] = None


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """True everywhere."""
    return make.ones((), dtype=bool_, device=token_q.device)


def _joined(what: str, masks: Tuple[Mask, ...], join: Callable[[Tensor, Tensor], Tensor], neutral: bool) -> Mask:
    if not all(callable(m) for m in masks):
        raise RuntimeError(f"{what}s: expected functions (b, h, q_idx, kv_idx), got {next(m for m in masks if not callable(m))!r}")

    def mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = b.new_full((), neutral, dtype=bool_)
        for m in masks:
            result = join(result, m(b, h, q_idx, kv_idx))
        return result

    mask.__name__ = what
    return mask


def and_masks(*mask_mods: Mask) -> Mask:
    """The mask that is True where all are."""
    return _joined("and_mask", mask_mods, _ops.logical_and, True)


def or_masks(*mask_mods: Mask) -> Mask:
    """The mask that is True where one of them is."""
    return _joined("or_mask", mask_mods, _ops.logical_or, False)


def _indices(b: int, h: int, q: int, k: int, *, device: Any) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """Numbers of batches, heads, queries and keys, which broadcast to [b, h, q, k]."""
    sizes = ((b, (b, 1, 1, 1)), (h, (1, h, 1, 1)), (q, (1, 1, q, 1)), (k, (1, 1, 1, k)))
    return tuple(make.arange(n, device=device).view(shape) for n, shape in sizes)  # type: ignore[return-value]


def create_mask(mod_fn: Any, B: Optional[int], H: Optional[int], Q_LEN: int, KV_LEN: int, device: Any = None) -> Tensor:
    """The mask of a function of (batch, head, query, key), a bool tensor [B, H, Q_LEN, KV_LEN]; 1 for a B or H of None. A function of
    (score, batch, head, query, key) gives what it makes of scores of 0."""
    shape = (B or 1, H or 1, Q_LEN, KV_LEN)
    indices = _indices(*shape, device=device)
    if mod_fn.__code__.co_argcount == 5 if hasattr(mod_fn, "__code__") else False:
        return mod_fn(make.zeros(shape, device=device), *indices).expand(shape)
    return mod_fn(*indices).to(bool_).expand(shape)


class BlockMask:
    """A mask as a function of (batch, head, query, key). ``create_block_mask`` makes it. ``shape`` is (B, H, Q_LEN, KV_LEN); ``seq_lengths`` the
    last two."""

    def __init__(self, mask_mod: Mask, shape: Tuple[int, int, int, int], block_size: Tuple[int, int], device: Any) -> None:
        self.mask_mod, self.shape, self.BLOCK_SIZE, self._device = mask_mod, shape, block_size, device
        self.seq_lengths = shape[2:]

    @classmethod
    def from_kv_blocks(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """NotImplementedError: a mask is a function here, not a list of blocks."""
        raise NotImplementedError("BlockMask.from_kv_blocks: a mask is a function here, not a list of blocks; use create_block_mask with a mask_mod")

    def _blocks(self) -> Tensor:
        mask = create_mask(self.mask_mod, *self.shape, device=self._device).to(float32)
        (q, k), (rows, columns) = self.shape[2:], self.BLOCK_SIZE
        padded = make.zeros(*self.shape[:2], -(-q // rows) * rows, -(-k // columns) * columns, device=self._device)
        padded[..., :q, :k] = mask
        return padded.view(*self.shape[:2], padded.shape[2] // rows, rows, padded.shape[3] // columns, columns).amax((3, 5))

    def to_dense(self) -> Tensor:
        """1 for each block in which the mask is True somewhere, int32."""
        from ..._C import int32

        return self._blocks().to(int32)

    def numel(self) -> int:
        """The number of scores."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """The percentage of scores that lie in blocks that are masked as a whole."""
        return 100 * (1 - self._blocks().sum().item() * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to(self, device: Any) -> BlockMask:
        """The same for another device; tensors that the function reads stay where they are."""
        return BlockMask(self.mask_mod, self.shape, self.BLOCK_SIZE, device)

    def __repr__(self) -> str:
        return f"BlockMask(shape={tuple(self.shape)}, sparsity={self.sparsity():.2f}%)"


def create_block_mask(mask_mod: Mask, B: Optional[int], H: Optional[int], Q_LEN: int, KV_LEN: int, device: Any = None,
                      BLOCK_SIZE: Union[int, Tuple[int, int]] = 128, _compile: bool = False, **options: Any) -> BlockMask:
    """A BlockMask of a function of (batch, head, query, key). torch's other options are about how blocks are stored, which are not."""
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    return BlockMask(mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN), size, device)  # type: ignore[arg-type]


def _checked(query: Tensor, key: Tensor, value: Tensor, block_mask: Any, enable_gqa: bool) -> None:
    if not query.ndim == key.ndim == value.ndim == 4:
        raise ValueError(f"flex_attention: expected query, key and value of 4 dimensions, got {query.ndim}, {key.ndim} and {value.ndim}")
    if not query.dtype == key.dtype == value.dtype:
        raise ValueError(f"flex_attention: expected one dtype, got query {query.dtype}, key {key.dtype} and value {value.dtype}")
    if query.shape[1] != key.shape[1] and not (enable_gqa and query.shape[1] % key.shape[1] == 0):
        raise ValueError(f"flex_attention: query has {query.shape[1]} heads and key {key.shape[1]}; enable_gqa=True takes a divisor")
    if block_mask is not None and (query.shape[2] > block_mask.shape[2] or key.shape[2] > block_mask.shape[3]):
        raise ValueError(f"flex_attention: the block_mask is for {block_mask.shape[2]} queries and {block_mask.shape[3]} keys, got "
                         f"{query.shape[2]} and {key.shape[2]}")


def flex_attention(query: Tensor, key: Tensor, value: Tensor, score_mod: Optional[Score] = None, block_mask: Optional[BlockMask] = None,
                   scale: Optional[float] = None, enable_gqa: bool = False, return_lse: bool = False, kernel_options: Any = None, *,
                   return_aux: Optional[AuxRequest] = None) -> Any:
    """Attention of [B, H, Q, E], [B, H, K, E] and [B, H, K, Ev], with the scores that ``score_mod(score, b, h, q_idx, kv_idx)`` gives, where
    ``block_mask`` is True. A query with no key gives 0. Scores are float32, of float64 tensors float64.

    ``enable_gqa``: key and value may have fewer heads, by a divisor. ``return_lse``: also the logarithm of the sum of the exponentials of a
    query's scores, [B, H, Q]; ``return_aux`` asks for that and the largest score by name. ValueError for shapes and dtypes that do not fit."""
    _checked(query, key, value, block_mask, enable_gqa)
    wide = float64 if query.dtype == float64 else float32
    if query.shape[1] != key.shape[1]:
        key, value = (t.repeat_interleave(query.shape[1] // t.shape[1], dim=1) for t in (key, value))
    factor = scale if scale is not None else 1 / math.sqrt(query.shape[-1])
    scores = (query @ key.transpose(-2, -1)).to(wide) * factor
    indices = _indices(*scores.shape, device=query.device)
    if score_mod is not None:
        scores = score_mod(scores, *indices).to(wide).expand(scores.shape)
    if block_mask is not None:
        scores = _ops.where(block_mask.mask_mod(*indices).to(bool_), scores, -math.inf)
    result = _ops._safe_softmax(scores, -1).to(query.dtype) @ value
    if return_aux is not None:
        return result, AuxOutput(_ops.logsumexp(scores, -1) if return_aux.lse else None, scores.amax(-1) if return_aux.max_scores else None)
    return (result, _ops.logsumexp(scores, -1)) if return_lse else result


__getattr__ = absent_from(__name__)
