"""Recurrent layers over whole sequences, one above the other, as the modules and torch's functions of that name run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, List, Optional, Tuple

from .. import _ops
from .._C import Tensor
from . import functional as F

Weights = Tuple[Any, ...]  # weight_ih, weight_hh, bias_ih, bias_hh and weight_hr: those of a layer in a direction, None where there is none


def run_layers(cell: str, x: Tensor, states: Sequence[Tensor], weights: Sequence[Weights], directions: int, dropout: float, training: bool,
               sizes: Optional[Tensor]) -> Tuple[Tensor, List[Tensor]]:
    """The last layer's results, and the last states of all. ``x`` is [steps, sequences, in], or the data of a packed batch with its ``sizes``;
    ``cell`` is tanh, relu, lstm or gru."""
    last: List[List[Tensor]] = []
    for layer in range(len(weights) // directions):
        if layer and dropout > 0:
            x = F.dropout(x, dropout, training)
        results = []
        for direction in range(directions):
            at = layer * directions + direction
            run = _direction if weights[at][4] is None else _projected
            y, end = run(cell, x, [s[at] for s in states], sizes, weights[at], direction == 1)
            results.append(y)
            last.append(end)
        x = results[0] if len(results) == 1 else _ops.cat(results, -1)
    return x, [_ops.stack(list(ends)) for ends in zip(*last)]


def _direction(cell: str, x: Tensor, begin: List[Tensor], sizes: Optional[Tensor], weights: Weights, reverse: bool) -> Tuple[Tensor, List[Tensor]]:
    w_ih, w_hh, b_ih, b_hh, _ = weights
    y, end = _ops._rnn_layer(x, _ops.stack(begin), w_ih, w_hh, b_ih, b_hh, sizes, cell, reverse)
    return y, list(end.unbind(0))


def _projected(cell: str, x: Tensor, begin: List[Tensor], sizes: Optional[Tensor], weights: Weights, reverse: bool) -> Tuple[Tensor, List[Tensor]]:
    """An LSTM whose hidden state is projected to fewer values (Sak et al. 2014), step by step."""
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    from_x = F.linear(x, w_ih, b_ih)
    counts = [x.shape[1]] * x.shape[0] if sizes is None else sizes.tolist()
    parts = list(from_x.unbind(0)) if sizes is None else from_x.split(counts)
    h, c = begin
    steps: List[Any] = [None] * len(counts)
    for t in reversed(range(len(counts))) if reverse else range(len(counts)):
        n = counts[t]
        i, f, g, o = (parts[t] + F.linear(h[:n], w_hh, b_hh)).chunk(4, -1)
        now = f.sigmoid() * c[:n] + i.sigmoid() * g.tanh()
        steps[t] = F.linear(o.sigmoid() * now.tanh(), w_hr)
        h, c = (new if n == len(old) else _ops.cat([new, old[n:]]) for new, old in ((steps[t], h), (now, c)))
    return (_ops.stack(steps) if sizes is None else _ops.cat(steps)), [h, c]


# -- torch's functions of lists of weights ----------------------------------------------------------------------


def _flat(name: str, cell: str) -> Any:
    def layers(input: Tensor, hx: Any, params: Any, has_biases: Any, num_layers: Any, dropout: Any, train: Any, bidirectional: Any,
               batch_first: Any) -> Tuple[Tensor, ...]:
        sizes = None
        if isinstance(has_biases, (list, tuple)):  # a packed batch: (data, batch_sizes, hx, params, has_biases, ...)
            sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first = (
                hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first, False)
        directions = 2 if bidirectional else 1
        each = len(params) // (num_layers * directions)
        if each * num_layers * directions != len(params) or each - (4 if has_biases else 2) not in (0, cell == "lstm"):
            raise RuntimeError(f"{name}: {len(params)} tensors in `params` do not fit {num_layers} layers")
        weights = [_sorted_out(params[i:i + each], has_biases) for i in range(0, len(params), each)]
        x, states = input.transpose(0, 1) if batch_first else input, [hx] if isinstance(hx, Tensor) else list(hx)
        y, last = run_layers(cell, x, states, weights, directions, dropout, train, sizes)
        return (y.transpose(0, 1) if batch_first else y, *last)

    layers.__name__ = layers.__qualname__ = name
    layers.__doc__ = f"Layers of nn.{name.split('_')[0].upper()}, their weights in a list: the results, and the last states."
    return layers


def _sorted_out(given: Sequence[Tensor], has_biases: bool) -> Weights:
    biases = (given[2], given[3]) if has_biases else (None, None)
    at = 4 if has_biases else 2
    return given[0], given[1], *biases, given[at] if len(given) > at else None


lstm, gru = _flat("lstm", "lstm"), _flat("gru", "gru")
rnn_tanh, rnn_relu = _flat("rnn_tanh", "tanh"), _flat("rnn_relu", "relu")
