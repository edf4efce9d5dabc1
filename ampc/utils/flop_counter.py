"""How many floating point operations products, convolutions and attention take, forward and backward: torch.utils.flop_counter.

The core shows each operator that runs with the shapes of its operands, so what is counted is what is computed. A multiplication and an addition
are two operations. Elementwise operators, reductions and norms are not counted, as in torch.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Dict, List, Optional, Set, Tuple, Union

from .. import _C, _ops
from .._messages.callers import warn
from .._tensor import creation as make
from ..autograd import enable_grad
from ..nn.modules.module import Module

__all__ = ["FlopCounterMode", "register_flop_formula"]

_Shapes = Sequence[Optional[Tuple[int, ...]]]
_SUFFIXES = ("", "K", "M", "B", "T")


# -- formulas: of the shapes of an operator's inputs and results -------------------------------------------------------


def _product(a: Any, b: Any) -> int:
    return 2 * math.prod(a) * b[-1]


def _linear(inputs: _Shapes, outputs: _Shapes) -> Tuple[str, int]:
    x, weight, bias = inputs
    return "aten.mm" if bias is None else "aten.addmm", _product(x, (weight or ())[::-1])


def _convolution(inputs: _Shapes, outputs: _Shapes) -> Tuple[str, int]:
    """Each position of the result, of a transposed one of the input, takes part in one product with the weight."""
    x, weight, out = inputs[0] or (), inputs[1] or (), outputs[0] or ()
    positions = (x if _C._seen_argument("transposed") else out)[2:]
    name = "aten.convolution" if _C._running() is None else "aten.convolution_backward"
    return name, 2 * x[0] * math.prod(positions) * math.prod(weight)


def _convolution_weight(inputs: _Shapes, outputs: _Shapes) -> Tuple[str, int]:
    small, weight = inputs[1] or (), outputs[0] or ()
    return "aten.convolution_backward", 2 * small[0] * math.prod(small[2:]) * math.prod(weight)


def _attention_products(q: Any, k: Any, v: Any) -> Tuple[int, int]:
    pairs = 2 * math.prod(q[:-1]) * k[-2]
    return pairs * q[-1], pairs * v[-1]


def _attention(inputs: _Shapes, outputs: _Shapes) -> Tuple[str, int]:
    return "aten._scaled_dot_product_flash_attention", sum(_attention_products(*inputs[:3]))


def _attention_backward(inputs: _Shapes, outputs: _Shapes) -> Tuple[str, int]:
    """The scores again, and their gradient; the gradients of q, k and v."""
    scores, values = _attention_products(*inputs[1:4])
    return "aten._scaled_dot_product_flash_attention_backward", 3 * scores + 2 * values


def _recurrence(inputs: _Shapes, outputs: _Shapes) -> Tuple[str, int]:
    """The product with the hidden state of each time step; that with the input is a linear layer."""
    return "aten.mm", 2 * math.prod((inputs[0] or ())[:2]) * math.prod(inputs[2] or ())


def _recurrence_backward(inputs: _Shapes, outputs: _Shapes) -> Tuple[str, int]:
    steps, batch = (inputs[0] or ())[:2]
    return "aten.mm", 4 * steps * batch * math.prod(inputs[5] or ())


_FORMULAS: Dict[str, Callable[[_Shapes, _Shapes], Tuple[str, int]]] = {
    "mm": lambda inputs, _: ("aten.mm", _product(*inputs[:2])),
    "bmm": lambda inputs, _: ("aten.bmm", _product(*inputs[:2])),
    "linear": _linear, "convolution": _convolution, "convolution_weight": _convolution_weight,
    **dict.fromkeys(("fused_attention", "flash_attention"), _attention),
    **dict.fromkeys(("fused_attention_backward", "flash_attention_backward"), _attention_backward),
    "recurrence": _recurrence, "recurrence_backward": _recurrence_backward,
}
flop_registry: Dict[str, Callable[..., int]] = {}


def _name_of(target: Any) -> str:
    """Of an operator, as a function of ampc or by its name."""
    name = target if isinstance(target, str) else getattr(target, "__name__", None)
    if name is None:
        raise ValueError(f"register_flop_formula: expected an operator of ampc or its name, got {target!r}")
    return name.rpartition(".")[2]


def _shaped(formula: Callable[..., int], get_raw: bool) -> Callable[..., int]:
    def count(inputs: tuple, outputs: tuple) -> int:
        if get_raw:
            return formula(*inputs, out_val=outputs[0] if len(outputs) == 1 else outputs)
        shapes = [tuple(t.shape) if t is not None else None for t in outputs]
        return formula(*(None if t is None else tuple(t.shape) for t in inputs), out_shape=shapes[0] if len(shapes) == 1 else shapes)

    return count


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """A decorator: the function counts one or several operators of the table, given as functions (``ampc.tanh``) or by name (``"aten.tanh"``).
    It gets the shapes of the inputs, and ``out_shape=``; with ``get_raw`` the tensors, and ``out_val=``."""
    def register(formula: Callable[..., int]) -> Callable[..., int]:
        for target in targets if isinstance(targets, (list, tuple)) else [targets]:
            flop_registry[_name_of(target)] = _shaped(formula, get_raw)
        return formula

    return register


# -- which module runs -------------------------------------------------------------------------------------------------


def _newest_node() -> int:
    """The number of a node that is recorded now: those of later ones are larger."""
    with enable_grad():
        return _C._node_number(_ops.neg(make.ones(1, requires_grad=True)))


class _Modules:
    """The modules whose calls an operator lies in, by name; in backward those in whose calls its node was recorded."""

    def __init__(self) -> None:
        self.names: Any = weakref.WeakKeyDictionary()
        self.calls: List[str] = []
        self.spans: List[Tuple[int, int, str]] = []
        self.thread = threading.get_ident()

    def enter(self) -> None:
        before = self.before = Module._ampc_call

        def call(module: Module, args: tuple, kwargs: dict) -> Any:
            if threading.get_ident() != self.thread:
                return before(module, args, kwargs)
            name, first = self._name(module), _newest_node()
            self.calls.append(name)
            try:
                return before(module, args, kwargs)
            finally:
                self.calls.pop()
                self.spans.append((first, _newest_node(), name))

        Module._ampc_call = call  # type: ignore[method-assign, assignment]

    def leave(self) -> None:
        Module._ampc_call = self.before  # type: ignore[method-assign]

    def _name(self, module: Module) -> str:
        name = self.names.setdefault(module, type(module).__name__)
        for child, below in module.named_children():
            self.names.setdefault(below, f"{name}.{child}")
        return name

    def around(self) -> Set[str]:
        running = _C._running()
        if running is None:
            return {"Global", *self.calls}
        return {"Global", *self.calls, *(name for first, last, name in self.spans if first < running[1] < last)}


# -- the counter -------------------------------------------------------------------------------------------------------


class FlopCounterMode(_C.Scope):
    """Counts the operations of this thread within a ``with`` statement, forward and backward, by module and operator.

    Operators have torch's names. What is counted is what runs: a product of a matrix and a vector is one of matrices here, and the gradient of a
    grouped convolution's weight is counted within its groups, where torch counts each pair of channels.

    Args:
        mods: not needed; the modules are known as they are called.
        depth: how many levels of modules the table shows.
        display: print the table at the end.
        custom_mapping: {operator: function}, as register_flop_formula for this counter alone."""

    def __init__(self, mods: Optional[Union[Module, List[Module]]] = None, depth: int = 2, display: bool = True,
                 custom_mapping: Optional[Dict[Any, Callable[..., int]]] = None) -> None:
        if mods is not None:
            warn("FlopCounterMode: `mods` has no effect; modules are known as they are called")
        self.flop_counts: Dict[str, Dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.depth, self.display = depth, display
        own = {_name_of(k): _shaped(f, getattr(f, "_get_raw", False)) for k, f in (custom_mapping or {}).items()}
        self.flop_registry = {**flop_registry, **own}

    def _changes(self) -> tuple:
        self.flop_counts.clear()
        self._modules = _Modules()
        self._outer = _C._watcher()
        return (self._modules.enter, (), self._ends, ()), (_C._watch, (self._saw,), _C._watch, (self._outer,))

    def _ends(self) -> None:
        self._modules.leave()
        if self.display:
            print(self.get_table(self.depth))

    def _saw(self, op: str, inputs: tuple, outputs: tuple, low: Any, onto: bool, nanoseconds: int) -> None:
        if self._outer is not None:
            self._outer(op, inputs, outputs, low, onto, nanoseconds)
        found = self._count(op, inputs, outputs)
        if found is not None:
            for name in self._modules.around():
                self.flop_counts[name][found[0]] += found[1]

    def _count(self, op: str, inputs: tuple, outputs: tuple) -> Optional[Tuple[str, int]]:
        if op in self.flop_registry:
            return f"aten.{op}", self.flop_registry[op](inputs, outputs)
        if op not in _FORMULAS:
            return None
        shapes = [[None if t is None else tuple(t.shape) for t in side] for side in (inputs, outputs)]
        return _FORMULAS[op](*shapes)

    def get_total_flops(self) -> int:
        """All operations that were counted."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> Dict[str, Dict[str, int]]:
        """{module: {operator: operations}}, with ``Global`` for all."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: Optional[int] = None) -> str:
        """The counts as a table of text, of modules down to ``depth`` levels."""
        depth = self.depth if depth is None else depth
        total = self.get_total_flops()
        unit = min(len(_SUFFIXES) - 1, max(0, (len(str(total)) - 2) // 3))
        shown = [name for name in sorted(self.flop_counts) if name != "Global" and name.count(".") < depth]
        rows = [row for name in shown for row in self._rows(name, name.count("."), total, unit)]
        if self.flop_counts["Global"] and not any(sum(self.flop_counts[name].values()) >= total for name in shown):
            rows = [*self._rows("Global", 0, total, unit), *((" " + first, *rest) for first, *rest in rows)]
        return _aligned([("Module", "FLOP", "% Total"), *(rows or [("Global", "0", "0%")])])

    def _rows(self, name: str, level: int, total: int, unit: int) -> List[Tuple[str, ...]]:
        counts = self.flop_counts[name]
        lines: Iterable[Tuple[str, int]] = [(name, sum(counts.values())), *((f" - {op}", count) for op, count in counts.items())]
        return [(" " * level + text, f"{count / 1000 ** unit:.3f}{_SUFFIXES[unit]}", f"{count / total:.2%}" if total else "0%")
                for text, count in lines]


def _aligned(rows: List[Tuple[str, ...]]) -> str:
    widths = [max(len(rows[0][i]) + 2, *(len(row[i]) for row in rows)) for i in range(3)]
    rows = [rows[0], ("-" * widths[0], "-" * widths[1], "-" * widths[2]), *rows[1:]]
    return "\n".join(f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows)
