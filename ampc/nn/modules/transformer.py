"""The transformer's layers (Vaswani et al. 2017)."""

from __future__ import annotations

import copy
from typing import Any, Callable, Optional, Union

from ..._C import Tensor
from ..._tensor import creation as make
from .. import functional as F
from .. import init
from .activation import MultiheadAttention
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalization import LayerNorm

__all__ = ["Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer"]


_Activation = Union[str, Callable[[Tensor], Tensor]]


def _activation(name: _Activation) -> Callable[[Tensor], Tensor]:
    if callable(name):
        return name
    if name not in ("relu", "gelu"):
        raise RuntimeError(f"activation must be 'relu', 'gelu' or a function, got {name!r}")
    return F.relu if name == "relu" else F.gelu


_get_activation_fn = _activation


class _Layer(Module):
    """What both layers share: the options, attention to itself, and two linear maps with ``activation`` between."""

    _attends_to_memory = False

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: _Activation = F.relu,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        factory_kwargs: Any = {"device": device, "dtype": dtype}
        parts = ("self_attn", "multihead_attn") if self._attends_to_memory else ("self_attn",)
        for name in parts:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **factory_kwargs))
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **factory_kwargs)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **factory_kwargs)
        self.norm_first = norm_first
        for i in range(1, len(parts) + 2):
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **factory_kwargs))
        for i in range(1, len(parts) + 2):
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = _activation(activation)

    def _add(self, x: Tensor, norm: Callable[[Tensor], Tensor], block: Callable[[Tensor], Tensor]) -> Tensor:
        """x and what ``block`` makes of it, normalised: before the block, or after."""
        return x + block(norm(x)) if self.norm_first else norm(x + block(x))

    def _sa_block(self, x: Tensor, attn_mask: Optional[Tensor], key_padding_mask: Optional[Tensor], is_causal: bool = False) -> Tensor:
        """Self-attention and dropout. Like the other blocks, it has torch's name: subclasses put their own in its place."""
        return self.dropout1(self.self_attn(x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, is_causal=is_causal,
                                            need_weights=False)[0])

    def _ff_block(self, x: Tensor) -> Tensor:
        """The two linear maps, and the layer's last dropout."""
        last = self.dropout3 if self._attends_to_memory else self.dropout2
        return last(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoderLayer(_Layer):
    """Self-attention, then two linear maps, each added to its input and normalised: after it, or (``norm_first``) before."""

    def forward(self, src: Tensor, src_mask: Optional[Tensor] = None, src_key_padding_mask: Optional[Tensor] = None,
                is_causal: bool = False) -> Tensor:
        """``src`` [L, N, E], or [N, L, E] with batch_first; masks as of MultiheadAttention."""
        x = self._add(src, self.norm1, lambda x: self._sa_block(x, src_mask, src_key_padding_mask, is_causal=is_causal))
        return self._add(x, self.norm2, self._ff_block)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to ``memory``, then two linear maps, each added to its input and normalised."""

    _attends_to_memory = True

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Optional[Tensor] = None, memory_mask: Optional[Tensor] = None,
                tgt_key_padding_mask: Optional[Tensor] = None, memory_key_padding_mask: Optional[Tensor] = None, tgt_is_causal: bool = False,
                memory_is_causal: bool = False) -> Tensor:
        """``tgt`` and ``memory`` [L, N, E], or [N, L, E] with batch_first; masks as of MultiheadAttention."""
        x = self._add(tgt, self.norm1, lambda x: self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal))
        x = self._add(x, self.norm2, lambda x: self._mha_block(x, memory, memory_mask, memory_key_padding_mask, memory_is_causal))
        return self._add(x, self.norm3, self._ff_block)

    def _mha_block(self, x: Tensor, mem: Tensor, attn_mask: Optional[Tensor], key_padding_mask: Optional[Tensor], is_causal: bool = False) -> Tensor:
        """Attention to ``mem``, and dropout."""
        return self.dropout2(self.multihead_attn(x, mem, mem, attn_mask=attn_mask, key_padding_mask=key_padding_mask, is_causal=is_causal,
                                                 need_weights=False)[0])


def _get_clones(module: Module, N: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(N)])


class _Stack(Module):
    def __init__(self, layer: Module, num_layers: int, norm: Optional[Module]) -> None:
        super().__init__()
        self.layers = _get_clones(layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def _finish(self, x: Tensor) -> Tensor:
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """``num_layers`` copies of a layer, one after another, and ``norm`` at the end. ``enable_nested_tensor`` and ``mask_check`` are
    accepted for compatibility."""

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Optional[Module] = None, enable_nested_tensor: bool = True,
                 mask_check: bool = True) -> None:
        super().__init__(encoder_layer, num_layers, norm)
        self.enable_nested_tensor, self.mask_check, self.use_nested_tensor = enable_nested_tensor, mask_check, False

    def forward(self, src: Tensor, mask: Optional[Tensor] = None, src_key_padding_mask: Optional[Tensor] = None,
                is_causal: Optional[bool] = None) -> Tensor:
        x = src
        for layer in self.layers:
            x = layer(x, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return self._finish(x)


class TransformerDecoder(_Stack):
    """``num_layers`` copies of a layer, one after another, and ``norm`` at the end."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Optional[Module] = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Optional[Tensor] = None, memory_mask: Optional[Tensor] = None,
                tgt_key_padding_mask: Optional[Tensor] = None, memory_key_padding_mask: Optional[Tensor] = None,
                tgt_is_causal: Optional[bool] = None, memory_is_causal: bool = False) -> Tensor:
        x = tgt
        for layer in self.layers:
            x = layer(x, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                      memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=bool(tgt_is_causal), memory_is_causal=memory_is_causal)
        return self._finish(x)


class Transformer(Module):
    """An encoder of ``src`` and a decoder of ``tgt`` that attends to it."""

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6, dim_feedforward: int = 2048,
                 dropout: float = 0.1, activation: _Activation = F.relu, custom_encoder: Optional[Any] = None,
                 custom_decoder: Optional[Any] = None, layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False,
                 bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype)

        self.encoder = custom_encoder or TransformerEncoder(TransformerEncoderLayer(*options), num_encoder_layers, norm())
        self.decoder = custom_decoder or TransformerDecoder(TransformerDecoderLayer(*options), num_decoder_layers, norm())
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self) -> None:
        """Draws the matrices anew, by Glorot's rule."""
        for p in self.parameters():
            if p.dim() > 1:
                init.xavier_uniform_(p)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Optional[Tensor] = None, tgt_mask: Optional[Tensor] = None,
                memory_mask: Optional[Tensor] = None, src_key_padding_mask: Optional[Tensor] = None, tgt_key_padding_mask: Optional[Tensor] = None,
                memory_key_padding_mask: Optional[Tensor] = None, src_is_causal: Optional[bool] = None, tgt_is_causal: Optional[bool] = None,
                memory_is_causal: bool = False) -> Tensor:
        """``src`` [S, N, E] and ``tgt`` [T, N, E], or [N, ...] with batch_first; RuntimeError where their widths or batches differ."""
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError(f"Transformer: `src` {list(src.shape)} and `tgt` {list(tgt.shape)} have batches of different sizes")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError(f"Transformer: `src` {list(src.shape)} and `tgt` {list(tgt.shape)} must have a width of {self.d_model}")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal, memory_is_causal=memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """[sz, sz], -inf above the diagonal and 0 elsewhere: nobody sees what comes later."""
        return make.full((sz, sz), float("-inf"), device=device, dtype=dtype).triu(1)
