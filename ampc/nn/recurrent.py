"""Cells of recurrent networks: one step at a time. Under autocast they run in 16 bits."""

from __future__ import annotations

import math
from typing import Any, Optional, Tuple

from .. import _C
from .. import _creation as make
from .._C import Tensor
from . import init
from .module import Module
from .parameter import Parameter

__all__ = ["GRUCell", "LSTMCell", "RNNCell"]

_f = _C._functions


class _Cell(Module):
    """weight_ih [gates * hidden, input], weight_hh [gates * hidden, hidden], biases; uniform up to 1 / sqrt(hidden) at first."""

    gates = 1

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = self.gates * hidden_size
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

    def _weights(self) -> tuple:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(_Cell):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu with ``nonlinearity='relu'``; input [N, in], state [N, hidden]."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None,
                 dtype: Any = None) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNNCell: `nonlinearity` must be 'tanh' or 'relu', got {nonlinearity!r}")
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Optional[Tensor] = None) -> Tensor:
        return _f[f"rnn_{self.nonlinearity}_cell"](input, self._zeros(input) if hx is None else hx, *self._weights())


class LSTMCell(_Cell):
    """(h', c') from input [N, in] and (h, c), each [N, hidden] (Hochreiter and Schmidhuber 1997)."""

    gates = 4

    def forward(self, input: Tensor, hx: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Tensor, Tensor]:
        h, c = (self._zeros(input), self._zeros(input)) if hx is None else hx
        return tuple(_f["lstm_cell"](input, h, c, *self._weights()))


class GRUCell(_Cell):
    """h' from input [N, in] and h [N, hidden] (Cho et al. 2014)."""

    gates = 3

    def forward(self, input: Tensor, hx: Optional[Tensor] = None) -> Tensor:
        return _f["gru_cell"](input, self._zeros(input) if hx is None else hx, *self._weights())
