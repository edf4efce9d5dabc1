"""Embedding tables."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from ..._C import Tensor
from ..._tensor import creation as make
from .. import functional as F
from .. import init
from ..parameter import Parameter
from .module import Module

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    def _setup(self, rows: int, width: int, padding_idx: Optional[int], max_norm: Any, norm_type: float, scale_grad_by_freq: bool, sparse: bool,
               weight: Optional[Tensor], freeze: bool, device: Any, dtype: Any) -> None:
        Module.__init__(self)
        if sparse:
            raise NotImplementedError(f"{type(self).__name__}: sparse=True needs sparse gradients, which are not in ampc; leave it out")
        self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse = max_norm, norm_type, scale_grad_by_freq, False
        if padding_idx is not None:
            if not -rows <= padding_idx < rows:
                raise AssertionError(f"{type(self).__name__}: `padding_idx` {padding_idx} is outside a table of {rows} rows")
            padding_idx %= rows
        self.num_embeddings, self.embedding_dim, self.padding_idx = rows, width, padding_idx
        self.weight = Parameter(make.empty(rows, width, device=device, dtype=dtype) if weight is None else weight, not freeze)
        if weight is None:
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the table anew, normal; the padding row is zero."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self) -> None:
        if self.padding_idx is not None:
            self.weight.data[self.padding_idx] = 0

    _shown: Tuple[str, ...] = ("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq")

    def extra_repr(self) -> str:
        usual = {"norm_type": 2.0, "scale_grad_by_freq": False}
        changed = [f"{name}={getattr(self, name)!r}" for name in self._shown if getattr(self, name) != usual.get(name)]
        return ", ".join([f"{self.num_embeddings}, {self.embedding_dim}", *changed])


def _check_table(cls: type, embeddings: Tensor) -> None:
    if embeddings.ndim != 2:
        raise AssertionError(f"{cls.__name__}.from_pretrained: expected a table [rows, width], got shape {list(embeddings.shape)}")


class Embedding(_Table):
    """A table [num_embeddings, embedding_dim] whose rows are looked up by index."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: Optional[int] = None, max_norm: Any = None,
                 norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Optional[Tensor] = None,
                 _freeze: bool = False, device: Any = None, dtype: Any = None) -> None:
        if _weight is not None and list(_weight.shape) != [num_embeddings, embedding_dim]:
            raise AssertionError(f"Embedding: `_weight` of shape {list(_weight.shape)} is not [{num_embeddings}, {embedding_dim}]")
        self._setup(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight, _freeze, device, dtype)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: Optional[int] = None, max_norm: Any = None,
                        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Embedding:
        """An Embedding on a given table [rows, width]. AssertionError for a tensor of other dimensions."""
        _check_table(cls, embeddings)
        return cls(embeddings.shape[0], embeddings.shape[1], padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings, freeze)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq)



class EmbeddingBag(_Table):
    """Sums, means or maxima of the rows that each bag names; bags are the rows of a 2-d input, or begin at ``offsets`` of a 1-d one."""

    _shown = ("max_norm", "norm_type", "scale_grad_by_freq", "mode", "padding_idx")

    def __init__(self, num_embeddings: int, embedding_dim: int, max_norm: Any = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                 mode: str = "mean", sparse: bool = False, _weight: Optional[Tensor] = None, include_last_offset: bool = False,
                 padding_idx: Optional[int] = None, device: Any = None, dtype: Any = None) -> None:
        if scale_grad_by_freq:
            raise NotImplementedError("EmbeddingBag: scale_grad_by_freq is not in ampc; Embedding has it")
        self._setup(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight, False, device, dtype)
        self.mode, self.include_last_offset = mode, include_last_offset

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, max_norm: Any = None, norm_type: float = 2.0,
                        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, include_last_offset: bool = False,
                        padding_idx: Optional[int] = None) -> EmbeddingBag:
        """An EmbeddingBag on a given table [rows, width]. AssertionError for a tensor of other dimensions."""
        _check_table(cls, embeddings)
        layer = cls(embeddings.shape[0], embeddings.shape[1], max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings,
                    include_last_offset, padding_idx)
        layer.weight.requires_grad = not freeze
        return layer

    def forward(self, input: Tensor, offsets: Optional[Tensor] = None, per_sample_weights: Optional[Tensor] = None) -> Tensor:
        return F.embedding_bag(input, self.weight, offsets, self.max_norm, self.norm_type, mode=self.mode, per_sample_weights=per_sample_weights,
                               include_last_offset=self.include_last_offset, padding_idx=self.padding_idx)
