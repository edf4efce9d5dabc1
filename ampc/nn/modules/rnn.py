"""Recurrent networks: layers over whole sequences, and cells, one step at a time. Under autocast they run in 16 bits."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Tuple

from ... import _C, _ops
from ..._C import Tensor
from ..._messages import checks as _checks
from ..._tensor import creation as make
from .. import init
from .._packed_sequence import PackedSequence
from .._recurrent import run_layers
from ..parameter import Parameter
from .module import Module

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]


class RNNCellBase(Module):
    """weight_ih [num_chunks * hidden, input], weight_hh [num_chunks * hidden, hidden], biases; uniform up to 1 / sqrt(hidden) at first."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size
        new = lambda *shape: Parameter(make.empty(*shape, device=device, dtype=dtype))  # noqa: E731
        self.weight_ih, self.weight_hh = new(rows, input_size), new(rows, hidden_size)
        if bias:
            self.bias_ih, self.bias_hh = new(rows), new(rows)
        else:
            self.register_parameter("bias_ih", None)
            self.register_parameter("bias_hh", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters again."""
        edge = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for p in self.parameters():
            init.uniform_(p, -edge, edge)

    def _zeros(self, input: Tensor) -> Tensor:
        return make.zeros((*input.shape[:-1], self.hidden_size), dtype=input.dtype, device=input.device)

    def _check(self, input: Any, *states: Any) -> None:
        name = type(self).__name__
        for t in (input, *states):
            if not isinstance(t, Tensor):
                raise _checks.NoTensor(f"{name}: expected a Tensor, got {type(t).__name__}")
            if t.ndim not in (1, 2):
                raise ValueError(f"{name}: expected input and state of 1 or 2 dimensions, got shape {list(t.shape)}")

    def _weights(self) -> tuple:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def extra_repr(self) -> str:
        kind = getattr(self, "nonlinearity", "tanh")
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False") + ("" if kind == "tanh" else f", nonlinearity={kind}")


class RNNCell(RNNCellBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu with ``nonlinearity='relu'``; input [N, in], state [N, hidden]."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None,
                 dtype: Any = None) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNNCell: `nonlinearity` must be 'tanh' or 'relu', got {nonlinearity!r}")
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Optional[Tensor] = None) -> Tensor:
        self._check(input, *(() if hx is None else (hx,)))
        cell = _ops.rnn_tanh_cell if self.nonlinearity == "tanh" else _ops.rnn_relu_cell
        return cell(input, self._zeros(input) if hx is None else hx, *self._weights())


class LSTMCell(RNNCellBase):
    """(h', c') from input [N, in] and (h, c), each [N, hidden] (Hochreiter and Schmidhuber 1997)."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Tensor, Tensor]:
        self._check(input)
        h, c = (self._zeros(input), self._zeros(input)) if hx is None else hx
        self._check(h, c)
        h, c = _ops.lstm_cell(input, h, c, *self._weights())
        return h, c


class GRUCell(RNNCellBase):
    """h' from input [N, in] and h [N, hidden] (Cho et al. 2014)."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Optional[Tensor] = None) -> Tensor:
        self._check(input, *(() if hx is None else (hx,)))
        return _ops.gru_cell(input, self._zeros(input) if hx is None else hx, *self._weights())


# -- layers ----------------------------------------------------------------------------------------------------


class RNNBase(Module):
    """The base of `RNN`, `LSTM` and `GRU`.

    Layer k has the parameters ``weight_ih_l{k}`` [gates * hidden, in], ``weight_hh_l{k}`` [gates * hidden, hidden], ``bias_ih_l{k}`` and
    ``bias_hh_l{k}``. Those of the other direction end with ``_reverse``. All begin uniform within 1 / sqrt(hidden_size).

    - The input is [steps, sequences, in], or [sequences, steps, in] with ``batch_first``; or [steps, in]; or a PackedSequence.
    - The states are [layers * directions, sequences, hidden]; zeros by default.
    - The result has the last layer's hidden states, shaped like the input but with [..., directions * hidden], and the last states.

    ``dropout`` is applied between layers when training. ValueError and RuntimeError for sizes that do not fit."""

    __constants__ = ["mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size"]

    def __init__(self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
                 dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        name = type(self).__name__
        for what, size in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
            if not isinstance(size, int):
                raise TypeError(f"{name}: `{what}` must be an int, got {type(size).__name__}")
        for what, flag in (("bias", bias), ("batch_first", batch_first)):
            if not isinstance(flag, bool):
                raise TypeError(f"{name}: `{what}` must be a bool, got {flag!r:.40}")
        if not isinstance(bidirectional, int):
            raise TypeError(f"{name}: `bidirectional` must be a bool, got {bidirectional!r:.40}")
        if mode not in ("LSTM", "GRU", "RNN_TANH", "RNN_RELU"):
            raise ValueError(f"{name}: `mode` must be 'LSTM', 'GRU', 'RNN_TANH' or 'RNN_RELU', got {mode!r}")
        if input_size <= 0:
            raise ValueError(f"{name}: `input_size` must be at least 1, got {input_size}")
        if hidden_size <= 0 or num_layers <= 0:
            raise ValueError(f"{name}: `hidden_size` and `num_layers` must be at least 1, got {hidden_size} and {num_layers}")
        if isinstance(dropout, (bool, str)) or not 0 <= dropout <= 1:
            raise ValueError(f"{name}: `dropout` is a probability in [0, 1], got {dropout!r}")
        if not 0 <= proj_size < hidden_size:
            raise ValueError(f"{name}: `proj_size` must be 0 or smaller than `hidden_size` {hidden_size}, got {proj_size}")
        self.mode, self.input_size, self.hidden_size, self.num_layers, self.bias = mode, input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional, self.proj_size = batch_first, float(dropout), bidirectional, proj_size
        self._make_parameters(device, dtype)
        self.reset_parameters()

    def _make_parameters(self, device: Any, dtype: Any) -> None:
        rows = {"LSTM": 4, "GRU": 3}.get(self.mode, 1) * self.hidden_size
        state, width = self._state_size(), self.input_size
        for layer in range(self.num_layers):
            for suffix in self._suffixes(layer):
                shapes: Dict[str, Tuple[int, ...]] = {"weight_ih": (rows, width), "weight_hh": (rows, state)}
                if self.bias:
                    shapes.update(bias_ih=(rows,), bias_hh=(rows,))
                if self.proj_size:
                    shapes["weight_hr"] = (self.proj_size, self.hidden_size)
                for name, shape in shapes.items():
                    self.register_parameter(name + suffix, Parameter(make.empty(*shape, device=device, dtype=dtype)))
            width = state * self._directions()

    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _state_size(self) -> int:
        return self.proj_size or self.hidden_size

    def _suffixes(self, layer: int) -> List[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][:self._directions()]

    def _weights(self, suffix: str) -> Tuple[Any, ...]:
        there = {"weight_ih": True, "weight_hh": True, "bias_ih": self.bias, "bias_hh": self.bias, "weight_hr": self.proj_size}
        return tuple(getattr(self, name + suffix) if here else None for name, here in there.items())

    @property
    def all_weights(self) -> List[List[Parameter]]:
        """The parameters of each layer and direction."""
        return [[w for w in self._weights(suffix) if w is not None] for layer in range(self.num_layers) for suffix in self._suffixes(layer)]

    def flatten_parameters(self) -> None:
        """Does nothing: weights are packed for products as they are needed, wherever they lie."""

    def reset_parameters(self) -> None:
        """Draws the parameters again."""
        edge = 1.0 / math.sqrt(self.hidden_size)
        for p in self.parameters():
            init.uniform_(p, -edge, edge)

    def extra_repr(self) -> str:
        defaults = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        changed = [f"{name}={getattr(self, name)}" for name, usual in defaults.items() if getattr(self, name) != usual]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *changed])

    # -- running --

    def _check_state(self, what: str, state: Tensor, size: int, batch: Optional[int]) -> Tensor:
        """[layers * directions, sequences, size], from a state whose sequence may have no dimension of its own."""
        layers = self.num_layers * self._directions()
        want = (layers, size) if batch is None else (layers, batch, size)
        if tuple(state.shape) != want:
            raise RuntimeError(f"{type(self).__name__}: `{what}` must have shape {want}, got {tuple(state.shape)}")
        return state.unsqueeze(1) if batch is None else state

    def _check_input(self, x: Tensor, packed: bool, weight: Tensor) -> None:
        if not packed and x.dim() not in (2, 3):
            raise ValueError(f"{type(self).__name__}: `input` must have 2 dimensions, or 3 with a batch, got shape {tuple(x.shape)}")
        if x.dtype is not weight.dtype and not _C._is_autocast_enabled(x.device.type):
            raise ValueError(f"{type(self).__name__}: `input` is {x.dtype} and the weights {weight.dtype}; cast one of them, or use autocast")
        if x.shape[-1] != self.input_size:
            raise RuntimeError(f"{type(self).__name__}: `input` must have {self.input_size} features, got shape {tuple(x.shape)}")
        if x.shape[1 if self.batch_first and x.dim() == 3 and not packed else 0] == 0:
            raise RuntimeError(f"{type(self).__name__}: `input` has no steps, shape {tuple(x.shape)}")

    def _run(self, input: Any, states: Optional[List[Tensor]]) -> Tuple[Any, List[Tensor]]:
        """``states``: hidden (and of an LSTM cell) states, or None; the same of the result."""
        packed = isinstance(input, PackedSequence)
        x = input.data if packed else input
        weights = [self._weights(suffix) for layer in range(self.num_layers) for suffix in self._suffixes(layer)]
        self._check_input(x, packed, weights[0][0])
        alone = not packed and x.dim() == 2
        turned = self.batch_first and not packed and not alone
        sizes = [self._state_size(), self.hidden_size][:2 if self.mode == "LSTM" else 1]
        if packed:
            batch = int(input.batch_sizes[0])
        else:
            batch = 1 if alone else x.shape[0 if turned else 1]
        if alone:
            x = x.unsqueeze(1)
        elif turned:
            x = x.transpose(0, 1)
        if states is None:
            layers = self.num_layers * self._directions()
            states = [make.zeros((layers, batch, size), dtype=x.dtype, device=x.device) for size in sizes]
        else:
            names = ["hx", "cx"] if len(sizes) == 2 else ["hx"]
            states = [self._check_state(what, s, size, None if alone else batch) for what, s, size in zip(names, states, sizes)]
            if packed and input.sorted_indices is not None:
                states = [s.index_select(1, input.sorted_indices) for s in states]
        cell = {"RNN_TANH": "tanh", "RNN_RELU": "relu"}.get(self.mode, self.mode.lower())
        x, last = run_layers(cell, x, states, weights, self._directions(), self.dropout, self.training, input.batch_sizes if packed else None)
        if packed:
            x = PackedSequence(x, input.batch_sizes, input.sorted_indices, input.unsorted_indices)
            if input.unsorted_indices is not None:
                last = [s.index_select(1, input.unsorted_indices) for s in last]
        elif alone:
            x, last = x.squeeze(1), [s.squeeze(1) for s in last]
        elif turned:
            x = x.transpose(0, 1)
        return x, last


class RNN(RNNBase):
    """Layers of h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu with ``nonlinearity='relu'`` (Elman 1990); see RNNBase."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Any = None, dtype: Any = None) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNN: `nonlinearity` must be 'tanh' or 'relu', got {nonlinearity!r}")
        super().__init__(f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0,
                         device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Optional[Tensor] = None) -> Tuple[Any, Tensor]:
        y, (h,) = self._run(input, None if hx is None else [hx])
        return y, h


class LSTM(RNNBase):
    """Long short-term memory, gates in the order input, forget, cell, output (Hochreiter and Schmidhuber 1997); see RNNBase.
    States and their results are pairs (h, c). With ``proj_size`` hidden states are projected to that many values."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
                 dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None) -> None:
        super().__init__("LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype)

    def forward(self, input: Any, hx: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Any, Tuple[Tensor, Tensor]]:
        if hx is not None and (not isinstance(hx, (tuple, list)) or len(hx) != 2):
            raise RuntimeError("LSTM: needs two hidden states, (h, c)")
        y, (h, c) = self._run(input, None if hx is None else list(hx))
        return y, (h, c)


class GRU(RNNBase):
    """Gated recurrent units, gates in the order reset, update, new (Cho et al. 2014); see RNNBase."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
                 dropout: float = 0.0, bidirectional: bool = False, device: Any = None, dtype: Any = None) -> None:
        super().__init__("GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)

    def forward(self, input: Any, hx: Optional[Tensor] = None) -> Tuple[Any, Tensor]:
        y, (h,) = self._run(input, None if hx is None else [hx])
        return y, h
