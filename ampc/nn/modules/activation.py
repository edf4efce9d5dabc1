"""Activations, and attention of several heads (Vaswani et al. 2017)."""

from __future__ import annotations

from typing import Any, ClassVar, Optional, Tuple

from ..._C import Tensor
from ..._messages.callers import warn
from ..._tensor import creation as make
from .. import functional as F
from .. import init
from .._multihead import attended
from ..parameter import Parameter
from ._function_module import FunctionModule
from .linear import NonDynamicallyQuantizableLinear
from .module import Module

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "SELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish",
    "MultiheadAttention", "PReLU", "RReLU", "ReLU", "ReLU6", "SiLU", "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink",
    "Softsign", "Tanh", "Tanhshrink", "Threshold",
]


class ReLU(FunctionModule, function="relu"):
    """max(x, 0)"""

    inplace: bool = False


class LeakyReLU(FunctionModule, function="leaky_relu"):
    """x where x > 0, else negative_slope * x."""

    negative_slope: float = 0.01
    inplace: bool = False


class ELU(FunctionModule, function="elu"):
    """x where x > 0, else alpha * (exp(x) - 1) (Clevert et al. 2016)."""

    alpha: float = 1.0
    inplace: bool = False


class CELU(FunctionModule, function="celu"):
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1)) (Barron 2017)."""

    alpha: float = 1.0
    inplace: bool = False


class SELU(FunctionModule, function="selu"):
    """ELU, scaled so that mean and variance settle (Klambauer et al. 2017)."""

    inplace: bool = False


class GELU(FunctionModule, function="gelu"):
    """x * Phi(x), or its tanh approximation."""

    approximate: str = "none"


class SiLU(FunctionModule, function="silu"):
    """x * sigmoid(x)"""

    inplace: bool = False


class Mish(FunctionModule, function="mish"):
    """x * tanh(softplus(x)) (Misra 2019)."""

    inplace: bool = False


class Sigmoid(FunctionModule, function="sigmoid"):
    """1 / (1 + exp(-x))"""


class Tanh(FunctionModule, function="tanh"):
    """Hyperbolic tangent."""


class Hardtanh(FunctionModule, function="hardtanh"):
    """x, kept within [min_val, max_val]."""

    min_val: float = -1.0
    max_val: float = 1.0
    inplace: bool = False

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False, min_value: Optional[float] = None,
                 max_value: Optional[float] = None) -> None:
        for old, new in ((min_value, "min_val"), (max_value, "max_val")):
            if old is not None:
                warn(f"Hardtanh: `{new}ue` is an old name of `{new}`", FutureWarning)
        super().__init__(min_val if min_value is None else min_value, max_val if max_value is None else max_value, inplace)
        if self.max_val <= self.min_val:
            raise AssertionError(f"Hardtanh: `max_val` must be above `min_val`, got {self.max_val} and {self.min_val}")


class ReLU6(Hardtanh, function="relu6"):
    """min(max(x, 0), 6)"""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def forward(self, input: Tensor) -> Tensor:
        return F.relu6(input, self.inplace)

    def extra_repr(self) -> str:
        return f"inplace={self.inplace}" if self.inplace else ""


class Hardsigmoid(FunctionModule, function="hardsigmoid"):
    """min(max(x + 3, 0), 6) / 6"""

    inplace: bool = False
    _shown: ClassVar[Any] = ()


class Hardswish(FunctionModule, function="hardswish"):
    """x * hardsigmoid(x) (Howard et al. 2019)."""

    inplace: bool = False


class _Shrink(FunctionModule, function=""):
    lambd: float = 0.5

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(_Shrink, function="hardshrink"):
    """x where |x| > lambd, else 0."""


class Softshrink(_Shrink, function="softshrink"):
    """x, nearer to 0 by lambd."""


class Tanhshrink(FunctionModule, function="tanhshrink"):
    """x - tanh(x)"""


class Softplus(FunctionModule, function="softplus"):
    """log(1 + exp(beta x)) / beta; x where beta x is above ``threshold``."""

    beta: float = 1.0
    threshold: float = 20.0


class Softsign(FunctionModule, function="softsign"):
    """x / (1 + |x|)"""


class LogSigmoid(FunctionModule, function="logsigmoid"):
    """log(sigmoid(x))"""


class Threshold(FunctionModule, function="threshold"):
    """x where x > threshold, else value."""

    threshold: float
    value: float
    inplace: bool = False


class GLU(FunctionModule, function="glu"):
    """The first half of ``dim`` times the sigmoid of the second (Dauphin et al. 2017)."""

    dim: int = -1


class Softmax(FunctionModule, function="softmax"):
    """exp(x) / sum(exp(x)) along ``dim``."""

    dim: Optional[int] = None


class Softmin(FunctionModule, function="softmin"):
    """exp(-x) / sum(exp(-x)) along ``dim``."""

    dim: Optional[int] = None


class LogSoftmax(FunctionModule, function="log_softmax"):
    """x - log(sum(exp(x))) along ``dim``."""

    dim: Optional[int] = None


class Softmax2d(Module):
    """Softmax over the channels of [N, C, H, W] or [C, H, W]."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected 3 or 4 dimensions, got shape {list(input.shape)}")
        return F.softmax(input, -3)


class PReLU(Module):
    """x where x > 0, else a learned slope times x: one slope, or one for each channel of [N, C, ...] (He et al. 2015)."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(make.full((num_parameters,), init, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Sets the slopes to ``init`` again."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class RReLU(FunctionModule, function="rrelu"):
    """x where x > 0, else a slope times x: drawn from [lower, upper] when training, their mean otherwise (Xu et al. 2015)."""

    lower: float = 1.0 / 8
    upper: float = 1.0 / 3
    inplace: bool = False
    _shown: ClassVar[Any] = ("lower", "upper")

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class MultiheadAttention(Module):
    """Scaled dot products of projected queries with projected keys weigh projected values, in ``num_heads`` heads side by side.

    Args:
        embed_dim: width of queries and results; divisible by ``num_heads``.
        dropout: of the weights, when training.
        bias: of the projections. add_bias_kv: a learned key and value more. add_zero_attn: a key and value of zeros more.
        kdim, vdim: width of keys and values, ``embed_dim`` by default.
        batch_first: tensors are [N, L, E] rather than [L, N, E]; without N either way for a single sample.

    AssertionError where the heads do not divide ``embed_dim``."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
                 add_zero_attn: bool = False, kdim: Optional[int] = None, vdim: Optional[int] = None, batch_first: bool = False,
                 device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        if embed_dim < 1 or num_heads < 1:
            raise ValueError(f"MultiheadAttention: `embed_dim` and `num_heads` must be 1 or more, got {embed_dim} and {num_heads}")
        if embed_dim % num_heads:
            raise AssertionError(f"MultiheadAttention: {num_heads} heads do not divide a width of {embed_dim}")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self.head_dim, self.add_zero_attn = embed_dim // num_heads, add_zero_attn
        self._qkv_same_embed_dim = self.kdim == self.vdim == embed_dim
        factory_kwargs: Any = {"device": device, "dtype": dtype}
        if self._qkv_same_embed_dim:
            self.in_proj_weight = Parameter(make.empty(3 * embed_dim, embed_dim, **factory_kwargs))
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.q_proj_weight = Parameter(make.empty(embed_dim, embed_dim, **factory_kwargs))
            self.k_proj_weight = Parameter(make.empty(embed_dim, self.kdim, **factory_kwargs))
            self.v_proj_weight = Parameter(make.empty(embed_dim, self.vdim, **factory_kwargs))
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", Parameter(make.empty(3 * embed_dim, **factory_kwargs)) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **factory_kwargs)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, Parameter(make.empty(1, 1, embed_dim, **factory_kwargs)) if add_bias_kv else None)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def merge_masks(self, attn_mask: Optional[Tensor], key_padding_mask: Optional[Tensor], query: Tensor) -> Tuple[Optional[Tensor], Optional[int]]:
        """Both masks, or the first alone, as one of [N, heads, L, S], and 2; the padding alone as it is, and 1; or (None, None). ``query`` is
        [N, L, E]."""
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        n, length, _ = query.shape
        if attn_mask.ndim == 3:
            merged = attn_mask.view(n, self.num_heads, length, length)
        else:
            merged = attn_mask.view(1, 1, length, length).expand(n, self.num_heads, -1, -1)
        if key_padding_mask is not None:
            merged = merged + key_padding_mask.view(n, 1, 1, length).expand(-1, self.num_heads, -1, -1)
        return merged, 2

    def forward(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Optional[Tensor] = None, need_weights: bool = True,
                attn_mask: Optional[Tensor] = None, average_attn_weights: bool = True, is_causal: bool = False) -> Tuple[Tensor, Optional[Tensor]]:
        """The result, like ``query``, and with ``need_weights`` the weights [N, L, S], or of every head [N, heads, L, S]. Masks: bool,
        True where a key is left out, or numbers that are added to the scores. ``is_causal`` says that ``attn_mask`` is the causal one."""
        weights: Any = self.in_proj_weight if self._qkv_same_embed_dim else (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        return attended(query, key, value, self.embed_dim, self.num_heads, weights, self.in_proj_bias, (self.bias_k, self.bias_v),
                        self.add_zero_attn, self.dropout if self.training else 0.0, self.out_proj, (attn_mask, key_padding_mask), need_weights,
                        average_attn_weights, is_causal, self.batch_first)
