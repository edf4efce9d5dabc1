"""Layers that know their policy. Source of names, arguments and defaults: keras.layers. Images are channels last, as there."""

from __future__ import annotations

import math
from typing import Any, Dict, Optional, Sequence, Tuple, Union

from .. import _C, nn
from .._C import Tensor
from .._tensor import creation as make
from ._lookup import ACTIVATIONS, INITIALIZERS, named
from .mixed_precision import Policy, policy_of

F = nn.functional


class _Region(_C.AutocastScope):
    """A layer's autocast, by its policy."""

    _observable = False

    def __init__(self, device: str, dtype: Any, mixed: bool) -> None:
        self.device, self.fast_dtype, self._enabled = device, dtype if mixed else _C.bfloat16, mixed


class Layer(nn.Module):
    """Base of layers. A subclass defines ``call(x)``, and ``build(input_shape)`` where it has variables, which ``add_weight`` makes.

    Inputs are cast to the policy's compute dtype, products computed in it, outputs given in it; variables stay in the variable dtype, and no
    16-bit copy of them is kept.

    Args:
        dtype: a policy or its name (default: the global one, when the layer is made).
        input_shape: without the batch; the layer is built at once. Else at the first call.
        name: for people."""

    least_ndim = 1  # of inputs

    def __init__(self, *, dtype: Union[Policy, str, None] = None, input_shape: Optional[Sequence[int]] = None, name: Optional[str] = None) -> None:
        super().__init__()
        self.dtype_policy = policy_of(dtype)
        self.built = False
        self.name = name or type(self).__name__.lower()
        self._input_shape = None if input_shape is None else tuple(input_shape)
        self._keeps_output = False  # its dtype, as softmax made it
        if self._input_shape is not None:
            self._build((None, *self._input_shape))

    @property
    def compute_dtype(self) -> str:
        """The policy's."""
        return self.dtype_policy.compute_dtype

    @property
    def variable_dtype(self) -> str:
        """The policy's."""
        return self.dtype_policy.variable_dtype

    def build(self, input_shape: tuple) -> None:
        """Makes the variables; the batch's dimension is None."""

    def call(self, x: Tensor) -> Tensor:
        """The layer's computation, on inputs in the compute dtype."""
        raise NotImplementedError(f"{type(self).__name__} defines no call(x)")

    def add_weight(self, name: str, shape: Sequence[int], initializer: Any = "glorot_uniform") -> Tensor:
        """A trained variable of the policy's variable dtype, on the default device, as an attribute."""
        weight = nn.Parameter(make.empty(*shape, dtype=getattr(_C, self.variable_dtype)))
        named(initializer, INITIALIZERS, "initializer", "glorot_uniform")(weight)
        setattr(self, name, weight)
        return weight

    def _build(self, input_shape: tuple) -> None:
        if not self.built:
            self.build(input_shape)
            self.built = True

    def forward(self, x: Tensor) -> Tensor:
        """``call`` under the policy. ValueError for an x without a batch."""
        if x.ndim < self.least_ndim:
            raise ValueError(f"{type(self).__name__}: expected an x of {self.least_ndim} dimensions or more, the batch first, got shape "
                             f"{list(x.shape)}")
        self._build((None, *x.shape[1:]))
        dtype = getattr(_C, self.compute_dtype)
        x = x.to(dtype) if x.is_floating_point() else x
        mixed = self.variable_dtype != self.compute_dtype
        with _Region("cuda" if x.is_cuda else "cpu", dtype, mixed):
            y = self.call(x)
        return y if self._keeps_output or not y.is_floating_point() else y.to(dtype)

    def get_weights(self) -> list:
        """The variables as NumPy arrays."""
        return [p.detach().float().numpy(force=True) if p.dtype is _C.bfloat16 else p.detach().numpy(force=True) for p in self.parameters()]

    def count_params(self) -> int:
        """How many numbers it trains."""
        return sum(p.numel() for p in self.parameters())

    def extra_repr(self) -> str:
        return f"policy={self.dtype_policy.name}"


class Activation(Layer):
    """A function of the inputs: a name or a callable. 'softmax' gives float32 under any policy."""

    def __init__(self, activation: Any, **options: Any) -> None:
        super().__init__(**options)
        self._use(activation)

    def _use(self, activation: Any) -> None:
        self.activation_name = activation if isinstance(activation, str) else "linear" if activation is None else ""
        self.activation = named(activation, ACTIVATIONS, "activation", "linear")
        self._keeps_output = self.activation_name in ("softmax", "log_softmax")

    def logits(self, x: Tensor) -> Tensor:
        """``forward`` without the activation."""
        kept, self.activation, self._keeps_output = (self.activation, self._keeps_output), ACTIVATIONS["linear"], False
        try:
            return self.forward(x)
        finally:
            self.activation, self._keeps_output = kept

    def call(self, x: Tensor) -> Tensor:
        return self.activation(x)


class Dense(Activation):
    """activation(x @ kernel + bias).

    Args:
        units: outputs, >= 1.
        activation, use_bias, kernel_initializer, bias_initializer: as Keras'."""

    least_ndim = 2

    def __init__(self, units: int, activation: Any = None, use_bias: bool = True, kernel_initializer: Any = "glorot_uniform",
                 bias_initializer: Any = "zeros", **options: Any) -> None:
        self._options = _count(units, "Dense", "units"), bool(use_bias), kernel_initializer, bias_initializer
        super().__init__(activation, **options)

    def build(self, input_shape: tuple) -> None:
        units, use_bias, kernel, bias = self._options
        self.add_weight("weight", (units, input_shape[-1]), kernel)
        if use_bias:
            self.add_weight("bias", (units,), bias)

    @property
    def kernel(self) -> Tensor:
        """[inputs, units]: a view of ``weight``."""
        return self.weight.t()

    def call(self, x: Tensor) -> Tensor:
        return self.activation(F.linear(x, self.weight, self.bias if self._options[1] else None))

    def get_weights(self) -> list:
        kernel, *bias = super().get_weights()
        return [kernel.T, *bias]


class Conv2D(Activation):
    """A convolution over [batch, height, width, channels].

    Args:
        filters: outputs, >= 1.
        kernel_size, strides: a number or two.
        padding: 'valid' or 'same' (as much at the end as at the begin, one more where it is odd)."""

    least_ndim = 4

    def __init__(self, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid", activation: Any = None, use_bias: bool = True,
                 kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros", **options: Any) -> None:
        if padding not in ("valid", "same"):
            raise ValueError(f"Conv2D: `padding` must be 'valid' or 'same', got {padding!r}")
        self._options = _count(filters, "Conv2D", "filters"), bool(use_bias), kernel_initializer, bias_initializer
        self._kernel, self._strides, self._same = _pair(kernel_size, "kernel_size"), _pair(strides, "strides"), padding == "same"
        super().__init__(activation, **options)

    def build(self, input_shape: tuple) -> None:
        filters, use_bias, kernel, bias = self._options
        self.add_weight("weight", (filters, input_shape[-1], *self._kernel), kernel)
        if use_bias:
            self.add_weight("bias", (filters,), bias)

    def call(self, x: Tensor) -> Tensor:
        x = x.permute(0, 3, 1, 2)
        if self._same:
            missing = [max((math.ceil(n / s) - 1) * s + k - n, 0) for n, k, s in zip(x.shape[2:], self._kernel, self._strides)]
            x = F.pad(x, [missing[1] // 2, missing[1] - missing[1] // 2, missing[0] // 2, missing[0] - missing[0] // 2])
        y = F.conv2d(x, self.weight, self.bias if self._options[1] else None, self._strides)
        return self.activation(y.permute(0, 2, 3, 1))

    def get_weights(self) -> list:
        kernel, *bias = super().get_weights()
        return [kernel.transpose(2, 3, 1, 0), *bias]


class Dropout(Layer):
    """Zeros a share ``rate`` of the values while training, and scales the others up."""

    def __init__(self, rate: float, **options: Any) -> None:
        if not 0 <= rate <= 1:
            raise ValueError(f"Dropout: `rate` must be between 0 and 1, got {rate}")
        super().__init__(**options)
        self.rate = rate

    def call(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.rate, self.training)


class LayerNormalization(Layer):
    """Mean 0 and variance 1 over the last axis, in float32 under any policy, then scaled and shifted."""

    def __init__(self, epsilon: float = 1e-3, **options: Any) -> None:
        self._epsilon = epsilon
        super().__init__(**options)

    def build(self, input_shape: tuple) -> None:
        self.add_weight("gamma", (input_shape[-1],), "ones")
        self.add_weight("beta", (input_shape[-1],), "zeros")

    def call(self, x: Tensor) -> Tensor:
        return F.layer_norm(x.to(self.gamma.dtype), self.gamma.shape, self.gamma, self.beta, self._epsilon)


class Embedding(Layer):
    """Rows of a table [input_dim, output_dim], by integers."""

    def __init__(self, input_dim: int, output_dim: int, embeddings_initializer: Any = "uniform", **options: Any) -> None:
        super().__init__(**options)
        self.add_weight("embeddings", (input_dim, output_dim), embeddings_initializer)
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        return F.embedding(x.long(), self.embeddings)


class Flatten(Layer):
    """[batch, everything else]."""

    def call(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], -1)


def _count(value: Any, who: str, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{who}: `{what}` must be a whole number of 1 or more, got {value!r}")
    return value


def _pair(value: Any, what: str) -> Tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2 or min(pair) < 1:
        raise ValueError(f"Conv2D: `{what}` must be one or two numbers of 1 or more, got {value!r}")
    return pair


def Input(shape: Sequence[int], name: Optional[str] = None) -> Dict[str, Any]:
    """The shape of one sample, as the first item of a Sequential."""
    return {"input_shape": tuple(shape), "name": name}


InputLayer = Input
