"""Functions that make tensors. All take ``dtype`` (default: the default dtype, or that of the
argument), ``device`` and ``requires_grad`` as torch's do."""

from __future__ import annotations

import builtins
import math
import struct
from collections.abc import Callable, Sequence
from operator import index
from typing import Any, Dict, List, Optional, Tuple

from .. import _C, _ops
from .._C import Tensor, dtype
from .._events import announce
from .._messages import checks as _checks
from .._messages.callers import warn
from .device import asked, asked_or_chosen, check_device, number_of, preserve_format
from .out import written

__all__ = [
    "Generator", "arange", "as_tensor", "default_generator", "empty", "empty_like", "eye", "full", "full_like", "get_rng_state", "initial_seed",
    "linspace", "logspace", "manual_seed", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm",
    "range", "seed", "set_rng_state", "tensor", "zeros", "zeros_like",
]

_full, _arange_op, _cast, _to_device, _normal, _uniform = (_ops._full, _ops._arange, _ops._cast, _ops._to_device, _ops._normal, _ops._uniform)

_I64 = _C.int64
_HALF = (_C.float16, _C.bfloat16)
_DIGITS = {_C.float16: 11, _C.bfloat16: 8, _C.float32: 24, _C.float64: 53}  # binary ones of floating point dtypes
DLPACK_CPU, DLPACK_CUDA = 1, 2  # DLPack's device types
_converters: Dict[str, Callable[[Any], Tensor]] = {}  # by the protocol that an object has, what makes a tensor on its memory


def register_converter(protocol: str, convert: Callable[[Any], Tensor]) -> None:
    """``as_tensor`` shares the memory of objects that have this attribute through ``convert``."""
    _converters[protocol] = convert


def finish(t: Tensor, requires_grad: bool, out: Optional[Tensor] = None, pin_memory: bool = False) -> Tensor:
    """A new tensor as the arguments ask for it that every function here takes."""
    if out is not None:
        t = written(t, out, "new tensor", quiet=True)
    elif pin_memory:
        t = t.pin_memory()
    if requires_grad is not False and _checks.flag("a new tensor", "requires_grad", requires_grad):
        t.requires_grad = True
    return t


def _place(device: Any, layout: Any, out: Optional[Tensor]) -> int:
    """The number of the device that is asked for, or else ``out``'s."""
    return number_of(out.device if device is None and isinstance(out, Tensor) else device, layout)


def _on_device(t: Tensor, device: Any) -> Tensor:
    """``t``, made on the CPU, on the device asked for."""
    where = number_of(device)
    return _to_device(t, where) if where else t


def _one_of(sizes: tuple, size: Any) -> tuple:
    """``size=``, which stands in place of sizes that are given one by one."""
    if sizes:
        raise TypeError("sizes were given twice: one by one, and as `size`")
    return (size,)


def _size(size: tuple) -> Sequence[int]:
    if len(size) == 1 and isinstance(size[0], (tuple, list)):
        return size[0]
    return size


def _is_of_another_library(data: Any) -> bool:
    """Whether it is a tensor of another library, which gives its memory by DLPack, and waits for the stream that made it. NumPy's arrays go
    another way, those of a GPU by the interface that names their strides."""
    return hasattr(data, "__dlpack_device__") and not hasattr(data, "__array_interface__")


def of_another_library(data: Any) -> Optional[Tensor]:
    """A tensor on the memory of another library's; None for what is none."""
    if _is_of_another_library(data):
        return _converters["__dlpack__"](data)
    return _converters["__cuda_array_interface__"](data) if hasattr(data, "__cuda_array_interface__") else None


def tensor(data: Any, *, dtype: Optional[dtype] = None, device: Any = None, requires_grad: bool = False,
           pin_memory: bool = False) -> Tensor:
    """A new tensor with a copy of ``data``: a number, nested sequences of numbers, a NumPy array, or a Tensor, also of
    another library. ``dtype`` defaults to that of the data; Python floats take the default dtype.

    Raises TypeError for what is not numbers, ValueError for ragged rows.
    """
    if isinstance(data, Tensor):
        t = data.detach().clone() if dtype is None else _cast(data.detach(), dtype)
        device = asked_or_chosen(device)
        t = t if device is None else _to_device(t, number_of(device))
    elif _is_of_another_library(data):
        return finish(as_tensor(data, dtype, device).clone(), requires_grad, None, pin_memory)
    else:
        t = _on_device(_C._tensor_from(data, dtype), device)
        if isinstance(data, float) and dtype in _HALF:
            announce.number_rounded(data, t)
    return finish(t, requires_grad, None, pin_memory)


def as_tensor(data: Any, dtype: Optional[dtype] = None, device: Any = None) -> Tensor:
    """``data`` as a tensor, sharing memory where it can: Tensors, NumPy arrays of the dtype, tensors of other libraries. Where no ``device`` is
    asked for, Tensors move to the one that ``set_default_device`` or ``with device(...)`` has chosen, if any."""
    given = data if isinstance(data, Tensor) else of_another_library(data)
    if given is not None:
        return given.to(dtype=dtype, device=asked_or_chosen(device))
    if hasattr(data, "__array_interface__") and hasattr(data, "flags") and getattr(data.flags, "writeable", False):
        shared = _C.from_numpy(data)
        return _on_device(shared if dtype is None or shared.dtype == dtype else _cast(shared, dtype), device)
    return _on_device(_C._tensor_from(data, dtype), device)


def full(size: Any, fill_value: Any, *, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
         requires_grad: bool = False, pin_memory: bool = False, out: Optional[Tensor] = None) -> Tensor:
    """A tensor of ``size`` filled with a number; its dtype follows the number."""
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    if out is not None:
        dtype = _kind(dtype, out)
    elif dtype is None:
        if isinstance(fill_value, bool):
            dtype = _C.bool
        else:
            dtype = _I64 if _whole(fill_value) else _C.get_default_dtype()
    return finish(_full(size, fill_value, dtype, _place(device, layout, out)), requires_grad, out, pin_memory)


def _filled(value: Any, size: tuple, dtype: Any, layout: Any, device: Any, requires_grad: bool, out: Optional[Tensor], pin_memory: bool) -> Tensor:
    dtype = (dtype or _C.get_default_dtype()) if out is None else _kind(dtype, out)
    return finish(_full(_size(size), value, dtype, _place(device, layout, out)), requires_grad, out, pin_memory)


def zeros(*sizes: Any, size: Any = None, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
          pin_memory: bool = False, out: Optional[Tensor] = None) -> Tensor:
    """A tensor of zeros; sizes as separate ints, one sequence, or ``size=``."""
    return _filled(0, sizes if size is None else _one_of(sizes, size), dtype, layout, device, requires_grad, out, pin_memory)


def ones(*sizes: Any, size: Any = None, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
         pin_memory: bool = False, out: Optional[Tensor] = None) -> Tensor:
    """A tensor of ones; sizes as for ``zeros``."""
    return _filled(1, sizes if size is None else _one_of(sizes, size), dtype, layout, device, requires_grad, out, pin_memory)


def unset(kind: dtype) -> Any:
    """What memory holds that nobody has set: 0; where deterministic algorithms were asked for, a value that is noticed."""
    if not (asked["deterministic"] and asked["fill"]):
        return 0
    if kind.is_floating_point or kind == _C.bool:
        return math.nan if kind.is_floating_point else True
    return 2 ** (8 * kind.itemsize - (kind != _C.uint8)) - 1


def empty(*sizes: Any, size: Any = None, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
          pin_memory: bool = False, memory_format: Any = None, out: Optional[Tensor] = None) -> Tensor:
    """A tensor whose values are unspecified; sizes as for ``zeros``. Here they are zeros; after ``use_deterministic_algorithms(True)`` nan or the
    largest integer, unless ``utils.deterministic.fill_uninitialized_memory`` is False."""
    if memory_format is not None:
        return _laid_out(empty(*sizes, size=size, dtype=dtype, layout=layout, device=device, out=out), memory_format, requires_grad, pin_memory)
    value = unset(_kind(dtype, out)) if asked["deterministic"] else 0
    return _filled(value, sizes if size is None else _one_of(sizes, size), dtype, layout, device, requires_grad, out, pin_memory)


def _like(x: Tensor, dtype: Any, layout: Any, device: Any) -> Dict[str, Any]:
    """dtype, layout and device, those of ``x`` where not given."""
    return {"dtype": dtype or x.dtype, "layout": layout, "device": x.device if device is None else device}


def _laid_out(t: Tensor, memory_format: Any, requires_grad: bool, pin_memory: bool = False, like: Optional[Tensor] = None) -> Tensor:
    """A new tensor whose values may change places: in that format, or else in the order of ``like``."""
    if memory_format is not None and memory_format is not preserve_format:
        t = t.contiguous(memory_format=memory_format).detach()
    elif like is not None and not like.is_contiguous():
        t = t.as_strided(like.shape, like.to("meta").stride()).detach()
    return finish(t, requires_grad, None, pin_memory)


def zeros_like(input: Tensor, *, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
               pin_memory: bool = False, memory_format: Any = None) -> Tensor:
    """Zeros of another tensor's shape and dtype."""
    shape = _checks.need_tensor("zeros_like", input).shape
    return _laid_out(zeros(shape, **_like(input, dtype, layout, device)), memory_format, requires_grad, pin_memory, input)


def ones_like(input: Tensor, *, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
              pin_memory: bool = False, memory_format: Any = None) -> Tensor:
    """Ones of another tensor's shape and dtype."""
    shape = _checks.need_tensor("ones_like", input).shape
    return _laid_out(ones(shape, **_like(input, dtype, layout, device)), memory_format, requires_grad, pin_memory, input)


def empty_like(input: Tensor, *, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
               pin_memory: bool = False, memory_format: Any = None) -> Tensor:
    """A tensor of another's shape and dtype, values unspecified."""
    _checks.need_tensor("empty_like", input)
    value = unset(dtype or input.dtype) if asked["deterministic"] else 0
    return full_like(input, value, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad, pin_memory=pin_memory,
                     memory_format=memory_format)


def full_like(input: Tensor, fill_value: Any, *, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
              requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None) -> Tensor:
    """A tensor of another's shape and dtype, filled with a number."""
    shape = _checks.need_tensor("full_like", input).shape
    return _laid_out(full(shape, fill_value, **_like(input, dtype, layout, device)), memory_format, requires_grad, pin_memory, input)


def _whole(v: Any) -> bool:
    return isinstance(v, builtins.int) or (not v.is_floating_point() if isinstance(v, Tensor) else hasattr(v, "__index__"))


def _kind(dtype: Any, out: Optional[Tensor]) -> Any:
    """The dtype asked for, or that of ``out``, or the default one. RuntimeError where one is asked for that ``out`` does not have."""
    if out is None:
        return dtype or _C.get_default_dtype()
    if dtype is not None and isinstance(out, Tensor) and dtype != out.dtype:
        raise RuntimeError(f"`out` has the dtype {out.dtype}, and `dtype` asks for {dtype}; leave `dtype` out, or give the same one")
    return getattr(out, "dtype", None)


def _in_shape_of(out: Optional[Tensor], row: Tensor) -> Tensor:
    """A row of numbers in the shape of ``out`` where that has as many elements, as torch fills it."""
    return row if not isinstance(out, Tensor) or out.numel() != row.numel() else row.view(out.shape)


def arange(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
           requires_grad: bool = False, pin_memory: bool = False, out: Optional[Tensor] = None) -> Tensor:
    """start, start + step, ... below end; ``arange(end)`` starts at 0. int64 unless a float is given."""
    if end is None:
        start, end = 0, start
    if out is not None:
        row = _arange_op(start, end, step, _kind(dtype, out), _place(device, layout, out))
        return finish(_in_shape_of(out, row), requires_grad, out, pin_memory)
    if dtype is None:
        dtype = _I64 if _whole(start) and _whole(end) and _whole(step) else _C.get_default_dtype()
    return finish(_arange_op(start, end, step, dtype, _place(device, layout, out)), requires_grad, None, pin_memory)


def range(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
          requires_grad: bool = False, pin_memory: bool = False, out: Optional[Tensor] = None) -> Tensor:
    """start, start + step, ... up to end, which is among them where steps meet it; in the default dtype. arange leaves the end out."""
    if end is None:
        raise TypeError("range: argument `end` is missing")
    warn("range is deprecated, as torch's; use arange, whose end is left out")
    if not step or (end - start) / step < 0:
        raise RuntimeError(f"range: a step of {step} does not lead from {start} to {end}")
    t = _arange_op(0, math.floor((end - start) / step) + 1, 1, _C.float64, _place(device, layout, out)) * step + start
    return finish(_in_shape_of(out, _cast(t, _kind(dtype, out))), requires_grad, out, pin_memory)


def _bounds(what: str, ends: Sequence[Any], steps: int, dtype: Any) -> Tuple[Any, Any]:
    """The ends as numbers: whole ones, as the dtype holds them, for integers."""
    if any(isinstance(v, Tensor) and v.ndim for v in ends):
        raise RuntimeError(f"{what}: `start` and `end` must be numbers or 0-d tensors")
    if steps < 0:
        raise RuntimeError(f"{what}: `steps` must be 0 or more, got {steps}")
    if dtype.is_floating_point:
        return _checks.number(what, "start", ends[0]), _checks.number(what, "end", ends[1])
    first, last = (_full((), v.item() if isinstance(v, Tensor) else v, dtype, 0).item() for v in ends)
    return first, last


def _spaced(start: Any, end: Any, steps: int, intervals: int, where: int) -> Tensor:
    """start + i * step for the first half of the intervals from start to end, and as far from the end for the second: so both ends are exact.
    In float64."""
    i, step = _arange_op(0, steps, 1, _C.float64, where), (end - start) / max(intervals, 1)
    return _ops.where(i < max((intervals + 1) // 2, 1), i * step + start, (i - intervals) * step + end)


def linspace(start: Any, end: Any, steps: int, *, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
             pin_memory: bool = False, out: Optional[Tensor] = None, endpoint: bool = True) -> Tensor:
    """``steps`` numbers from start to end, both included (the end unless ``endpoint`` is False), evenly spaced; between whole ends for integer
    dtypes."""
    kind, steps = _kind(dtype, out), index(steps)
    values = _spaced(*_bounds("linspace", (start, end), steps, kind), steps, steps - endpoint, _place(device, layout, out))
    return finish(_in_shape_of(out, _cast(values, kind)), requires_grad, out, pin_memory)


def logspace(start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False, pin_memory: bool = False, out: Optional[Tensor] = None) -> Tensor:
    """base ** linspace(start, end, steps), between whole ends for integer dtypes."""
    kind, steps = _kind(dtype, out), index(steps)
    exponents = _spaced(*_bounds("logspace", (start, end), steps, kind if steps > 1 else _C.float64), steps, steps - 1, _place(device, layout, out))
    return finish(_in_shape_of(out, _cast(_ops.pow(base, exponents), kind)), requires_grad, out, pin_memory)


def eye(n: int, m: Optional[int] = None, *, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
        requires_grad: bool = False, pin_memory: bool = False, out: Optional[Tensor] = None, k: Any = 0) -> Tensor:
    """The n x m matrix with ones on its k-th diagonal: above the main one where k is above 0."""
    where = _place(device, layout, out)
    first = 0 if k == 0 else max(-n, min(k, n if m is None else m))  # beyond these no diagonal is left
    rows, cols = _arange_op(first, n + first, 1, _I64, where), _arange_op(0, n if m is None else m, 1, _I64, where)
    return finish(_cast(rows.unsqueeze(1) == cols, _kind(dtype, out)), requires_grad, out, pin_memory)


def _random(draw: Any, size: Any, a: float, b: float, dtype: Any, where: int, requires_grad: bool, generator: Any,
            out: Optional[Tensor] = None, pin_memory: bool = False) -> Tensor:
    if generator is not None:
        with _drawing(generator):
            return _random(draw, size, a, b, dtype, where, requires_grad, None, out, pin_memory)
    return finish(draw(_size(size), a, b, _kind(dtype, out), where), requires_grad, out, pin_memory)


def need_probabilities(what: str, name: str, p: Any) -> None:
    """RuntimeError unless a number, or all elements of a tensor, are from 0 to 1. Those on a GPU are not looked at, which would be waiting for it."""
    if not isinstance(p, Tensor):
        if not 0 <= p <= 1:
            raise RuntimeError(f"{what}: `{name}` must be between 0 and 1, got {p}")
    elif not p.is_floating_point() or (not p.is_cuda and bool(((p < 0) | (p > 1) | p.isnan()).any())):
        raise RuntimeError(f"{what}: `{name}` must be floating point, and between 0 and 1")


def rand(*sizes: Any, size: Any = None, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
         generator: Any = None, pin_memory: bool = False, out: Optional[Tensor] = None) -> Tensor:
    """Uniform on [0, 1)."""
    return _random(_uniform, sizes if size is None else _one_of(sizes, size), 0.0, 1.0, dtype, _place(device, layout, out), requires_grad, generator,
                   out, pin_memory)


def randn(*sizes: Any, size: Any = None, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
          generator: Any = None, pin_memory: bool = False, out: Optional[Tensor] = None) -> Tensor:
    """Normal with mean 0 and deviation 1."""
    return _random(_normal, sizes if size is None else _one_of(sizes, size), 0.0, 1.0, dtype, _place(device, layout, out), requires_grad, generator,
                   out, pin_memory)


def _span(what: str, low: Any, high: Any) -> Tuple[Any, Any]:
    """The bounds of whole numbers, of which the lower may be left out."""
    if high is None:
        low, high = None, low
    if high is None:
        raise TypeError(f"{what}: argument `high` is missing")
    return (0 if low is None else low), high


def randint(low: Optional[int] = None, high: Any = None, size: Any = None, *, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None,
            requires_grad: bool = False, generator: Any = None, pin_memory: bool = False, out: Optional[Tensor] = None) -> Tensor:
    """Integers in [low, high); ``randint(high, size)`` starts at 0."""
    if size is None:
        high, size = None, high
    if size is None or isinstance(size, (builtins.int, Tensor)):
        raise TypeError("randint: argument `size` is missing")
    low, high = _span("randint", low, high)
    return _random(_ops._randint, (size,), low, high, dtype or (_I64 if out is None else None), _place(device, layout, out),
                   requires_grad, generator, out, pin_memory)


def randint_like(input: Tensor, low: Optional[int] = None, high: Optional[int] = None, *, dtype: Any = None, layout: Any = None, device: Any = None,
                 requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None) -> Tensor:
    """Random integers in [low, high) (or [0, low)), as many as x has."""
    how = _like(input, dtype, layout, device)
    return _laid_out(randint(*_span("randint_like", low, high), tuple(input.shape), **how), memory_format, requires_grad, pin_memory, input)


def randperm(n: int, *, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None, generator: Any = None, requires_grad: bool = False,
             pin_memory: bool = False, out: Optional[Tensor] = None) -> Tensor:
    """0..n-1 in random order; int64 unless ``dtype`` or ``out`` has another. RuntimeError for a dtype that cannot hold them."""
    if generator is not None:
        with _drawing(generator):
            return randperm(n, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad, pin_memory=pin_memory, out=out)
    kind = _I64 if dtype is None and out is None else _kind(dtype, out)
    if n > whole_numbers(kind):
        raise RuntimeError(f"randperm: {kind} does not hold all whole numbers below {n}; use int64")
    order = _ops._randperm(n, _place(device, layout, out))
    return finish(order if kind == _I64 else _cast(order, kind), requires_grad, out, pin_memory)


def whole_numbers(kind: Any) -> int:
    """How many whole numbers from 0 on a dtype holds without a gap. Of int64 one less, as `high` must fit 64 bits, too."""
    if kind in _DIGITS:
        return 2 ** _DIGITS[kind] + 1
    return 2 if kind == _C.bool else min(2 ** (8 * kind.itemsize - (kind != _C.uint8)), 2**63 - 1)


def rand_like(input: Tensor, *, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
              generator: Any = None, pin_memory: bool = False, memory_format: Any = None) -> Tensor:
    """Uniform on [0, 1), of another tensor's shape and dtype."""
    return _laid_out(rand(input.shape, **_like(input, dtype, layout, device), generator=generator), memory_format, requires_grad, pin_memory, input)


def randn_like(input: Tensor, *, dtype: Optional[dtype] = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
               generator: Any = None, pin_memory: bool = False, memory_format: Any = None) -> Tensor:
    """Standard normal, of another tensor's shape and dtype."""
    return _laid_out(randn(input.shape, **_like(input, dtype, layout, device), generator=generator), memory_format, requires_grad, pin_memory, input)


# for each vmap that runs: the streams that were used meanwhile, and what their states were before
_watching: List[Dict[builtins.int, Tuple[bytearray, builtins.bytes]]] = []


class Generator(_C.Scope):
    """A random stream of its own. Pass it as ``generator=``."""

    def __init__(self, device: Any = "cpu") -> None:
        self.device = check_device(device)
        self._cell = bytearray(16)  # the state, as the core has it
        self._state = (67280421310721, 0)

    def manual_seed(self, seed: Any) -> Generator:
        """Starts the stream again from ``seed``. RuntimeError for what is no whole number, ValueError for one beyond 64 bits."""
        if isinstance(seed, builtins.bool) or not hasattr(seed, "__index__"):
            raise RuntimeError(f"Generator.manual_seed: the seed must be an int, got {type(seed).__name__}")
        self._state = (_seed(seed, "Generator.manual_seed"), 0)
        return self

    def seed(self) -> int:
        """Starts the stream again from an unpredictable seed, which is returned."""
        self.manual_seed(_unpredictable())
        return self.initial_seed()

    def initial_seed(self) -> int:
        """The seed in use."""
        return self._state[0]

    def get_state(self) -> Tensor:
        """Seed and counter, as 16 bytes in a uint8 tensor."""
        return _pack_state(self._state)

    def set_state(self, state: Tensor) -> Generator:
        """Continues from a state that ``get_state`` gave. TypeError for what is no tensor of bytes, RuntimeError for another number of them."""
        self._state = _unpack_state(state)
        return self

    def clone_state(self) -> Generator:
        """Another stream that goes on from the same state."""
        twin = Generator(self.device)
        twin._state = self._state
        return twin

    def graphsafe_get_state(self) -> Generator:
        """A Generator of the same stream: what one draws, the other has drawn, too."""
        return Generator(self.device).graphsafe_set_state(self)

    def graphsafe_set_state(self, state: Generator) -> Generator:
        """Goes on with the stream of another Generator, together with that."""
        self._cell = _drawing(state)._cell
        return self

    @property
    def _state(self) -> tuple:
        return struct.unpack("=QQ", self._cell)

    @_state.setter
    def _state(self, state: tuple) -> None:
        self._cell[:] = struct.pack("=QQ", *state)

    def _changes(self) -> tuple:  # inside, it is the stream that operators draw from
        for used in _watching:
            used.setdefault(id(self._cell), (self._cell, builtins.bytes(self._cell)))
        return ((_C._swap_rng, (self._cell,), _C._swap_rng, (self._cell,)),)


def _pack_state(state: tuple) -> Tensor:
    return _C._tensor_from(list(struct.pack("=QQ", *state)), _C.uint8)


def _seed(seed: Any, what: str) -> int:
    """The 64 bits of a seed: of any number, or text of one, as torch has it."""
    value = builtins.int(seed)
    if not -(2**63) <= value < 2**64:
        raise ValueError(f"{what}: the seed {value} does not fit 64 bits")
    return value % 2**64


def _drawing(generator: Any) -> Any:
    """The context in which operators draw from ``generator``."""
    if not isinstance(generator, Generator):
        raise TypeError(f"`generator` must be an ampc.Generator or None, got {type(generator).__name__}")
    return generator


def _unpack_state(state: Tensor) -> tuple:
    bytes_ = isinstance(state, Tensor) and state.dtype == _C.uint8
    if not bytes_ or state.shape != (16,):
        got = f"{state.dtype!r} {list(state.shape)}" if isinstance(state, Tensor) else type(state).__name__
        kind: Any = RuntimeError if bytes_ else TypeError
        raise kind(f"the state of a random stream is 16 bytes (uint8), as get_rng_state() gives them, got {got}; torch's states are of "
                   "another stream and cannot be continued: leave them out, or call manual_seed")
    return struct.unpack("=QQ", builtins.bytes(state.tolist()))


class _Default(Generator):
    """The process's own stream, which operators draw from."""

    def __init__(self) -> None:
        self.device = check_device("cpu")

    @property
    def _state(self) -> tuple:
        return _C._rng_state()

    @_state.setter
    def _state(self, state: tuple) -> None:
        _C._set_rng_state(*state)

    def _changes(self) -> tuple:
        return ()


default_generator = _Default()


def manual_seed(seed: Any) -> Any:
    """Starts the process's random stream from ``seed``."""
    _C.manual_seed(_seed(seed, "manual_seed"))
    return default_generator


def seed() -> int:
    """Starts the random stream from an unpredictable seed, which is returned."""
    value = _unpredictable()
    _C.manual_seed(value)
    return value


def _unpredictable() -> int:
    import os

    return builtins.int.from_bytes(os.urandom(8), "little")


def initial_seed() -> int:
    """The seed of the random stream."""
    return _C._rng_state()[0]


def get_rng_state() -> Tensor:
    """The state of the random stream, seed and counter, as 16 bytes in a uint8 tensor."""
    return _pack_state(_C._rng_state())


def set_rng_state(new_state: Tensor) -> None:
    """Continues the random stream from a state that ``get_rng_state`` gave."""
    _C._set_rng_state(*_unpack_state(new_state))


_checks.install(globals(), internal="finish", hot="zeros ones empty full zeros_like ones_like empty_like full_like rand randn arange tensor")
