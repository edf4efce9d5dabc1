"""Methods and attributes of Tensor that are not operators of the table, attached to the C type here."""

from __future__ import annotations

import copy
import numbers
from collections.abc import Sequence
from typing import Any, Callable, List, Optional, Union

from .. import _C, _ops
from .._C import Tensor, dtype
from .._events import announce
from .._messages import checks as _checks
from ..autograd.engine import backward as _backward
from ..autograd.hooks import RemovableHandle
from . import creation as make
from . import functions as _functions
from .device import META_NUMBER, Size, default_type, device_of, gpu_asked_for, number_of, strided
from .device import device as Device
from .finfo import finfo
from .layout import in_format, unchanged, with_attributes
from .printing import tensor_format, tensor_html, tensor_repr
from .typed import name_of, typed

_cast, _to_device = _ops._cast, _ops._to_device
_METHOD, _IN_PLACE = 2, 4  # bits of an operator's home


def _install_rows() -> None:
    others = {row: [other for other, of in _ops.ALIASES.items() if of == row] for row in _ops.ALIASES.values()}
    for op in _C.op_table():
        for name in (op["python"], *others.get(op["python"], ())):
            if op["home"] & _METHOD:
                setattr(Tensor, name, _C._method(vars(_ops)[op["python"]]))
            if op["home"] & _IN_PLACE and op["home"] & _METHOD:
                setattr(Tensor, name + "_", _C._method(vars(_ops)[op["python"] + "_"]))


HOT = ("to", "type_as", "cpu", "cuda", "numpy", "backward", "requires_grad_", "unbind", "split", "chunk", "where",
       "__iter__")


def method(f: Callable) -> Callable:
    """Attached to Tensor; its arguments are checked, unless it is called in every step (see _checks.install). Of ``__iter__`` no class is asked,
    as in torch, but of the ``unbind`` in it."""
    setattr(Tensor, f.__name__, f if f.__name__ == "__iter__" else _checks.overridable(f) if f.__name__ in HOT else _checks.checked(f))
    return f


_install_rows()
for _function in (_functions.allclose, _functions.chunk, _functions.equal, _functions.nonzero, _functions.unbind):
    setattr(Tensor, _function.__name__, _function)
Tensor.permute_dims = Tensor.permute

for _dtype, _names in {
    _C.float64: ("double",), _C.float32: ("float",), _C.float16: ("half",), _C.bfloat16: ("bfloat16",),
    _C.int64: ("long",), _C.int32: ("int",), _C.int16: ("short",), _C.int8: ("char",), _C.uint8: ("byte",), _C.bool: ("bool",),
}.items():
    for _name in _names:
        def _convert(self: Tensor, memory_format: Any = None, _to: Any = _dtype) -> Tensor:
            if self.dtype == _to:
                return self if memory_format is None else unchanged(self, memory_format, "conversion")
            return in_format(_cast(self, _to), memory_format, "conversion")

        _convert.__name__ = _name
        _convert.__doc__ = f"The tensor as {_dtype.name}; itself when it is that already."
        setattr(Tensor, _name, _checks.overridable(_convert))


# -- making, converting --------------------------------------------------------------------------


def _legacy_new(cls: type, *args: Any, **kwargs: Any) -> Tensor:
    """Of the default dtype, on the CPU whatever device was chosen for new tensors, unless `set_default_tensor_type` has said a GPU."""
    where = default_type["device"]
    if cls is Tensor and kwargs:  # a subclass may have parameters of its own
        _check_legacy_words(where, kwargs)
    if len(args) == 1 and isinstance(args[0], Tensor):
        t = args[0].view_as(args[0]) if cls is Tensor else args[0].detach()
    elif len(args) == 1 and hasattr(args[0], "untyped"):
        from .storage import tensor_on

        t = tensor_on(args[0], _C.get_default_dtype())
    elif len(args) == 1 and not isinstance(args[0], (int, Size)):
        t = make.tensor(args[0], dtype=_C.get_default_dtype(), device=where)
    else:
        t = make.zeros(*(args or (0,)), device=where)
    return t if cls is Tensor else _C._make_subclass(cls, t, False)


def _check_legacy_words(where: Device, words: dict) -> None:
    others = [word for word in words if word != "device"]
    if others:
        raise TypeError(f"Tensor: takes no {', '.join(others)}; ampc.tensor(data, dtype=, device=) and ampc.empty(size, ...) do")
    if words["device"] is not None and Device(words["device"]).type != where.type:
        raise RuntimeError(f"Tensor: makes tensors on '{where.type}' only, got device='{words['device']}'; ampc.tensor(data, device=) and "
                           "ampc.empty(size, device=) make them elsewhere")


def _make_subclass(cls: Any, data: Tensor, require_grad: bool = False) -> Tensor:
    """An object of a subclass on the memory of ``data``, without its history."""
    return _C._make_subclass(cls, data.detach(), require_grad)


Tensor._legacy_new = staticmethod(_legacy_new)
Tensor._make_subclass = staticmethod(_make_subclass)


@method
def to(self: Tensor, *args: Any, dtype: Optional[dtype] = None, device: Any = None, non_blocking: bool = False,
       copy: bool = False, memory_format: Any = None) -> Tensor:
    """The tensor in another dtype or on another device: ``to(dtype)``, ``to(device)``,
    ``to(device, dtype)``, ``to(other_tensor)``. Itself when nothing changes, unless ``copy``."""
    for a in args:
        if isinstance(a, Tensor):
            dtype, device = a.dtype, a.device
        elif isinstance(a, _C.dtype) or a in (float, int, bool):
            dtype = a
        elif isinstance(a, bool):
            non_blocking = a
        elif a is not None:
            device = a
    here = _C._device_index(self)
    there = here if device is None else number_of(device)
    t = self
    if dtype is not None and t.dtype != dtype:
        late = there != here and isinstance(dtype, _C.dtype) and dtype.itemsize > t.dtype.itemsize  # the smaller one travels
        if late:
            return _cast(_to_device(t, there, non_blocking), dtype)
        t = _cast(t, dtype)
    if there != here:
        t = _to_device(t, there, non_blocking)
    if memory_format is not None:
        t = unchanged(t, memory_format, "to") if t is self else in_format(t, memory_format, "to")
    return t.clone() if copy and t is self else t


@method
def type(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The name of the tensor's type, such as 'torch.FloatTensor'; or the tensor in ``dtype``: a dtype, a type such as LongTensor or its
    name, which say the device as well. ValueError for another name."""
    return name_of(self) if dtype is None else typed(self, dtype, non_blocking)


@method
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor in another's dtype, on its device."""
    return self.to(other)


@method
def cpu(self: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor on the CPU: itself when it is there. Waits for the GPU's work that makes it."""
    return self.to("cpu", memory_format=memory_format)


@method
def cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """The tensor on a GPU (the current one when None). RuntimeError when there is none that can be used, and for another device."""
    return self.to(gpu_asked_for(device), non_blocking=non_blocking, memory_format=memory_format)


@method
def numpy(self: Tensor, *, force: bool = False) -> Any:
    """A NumPy array that shares the tensor's memory. RuntimeError when it requires gradients and grad mode is on, TypeError when it is on a
    GPU; ``force`` detaches and copies to the CPU where that is needed."""
    return _C._to_numpy(self.detach().cpu() if force else self)


@method
def __array__(self: Tensor, dtype: Any = None, copy: Optional[bool] = None) -> Any:
    array = _C._to_numpy(self)
    if dtype is not None and array.dtype != dtype:
        if copy is False:
            raise ValueError("a copy is needed to change the dtype")
        return array.astype(dtype)
    return array.copy() if copy else array


@method
def new_tensor(self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A new tensor of ``data`` with this one's dtype, on its device."""
    return make.tensor(data, dtype=dtype or self.dtype, device=self.device if device is None else device, requires_grad=requires_grad)


def _new(maker: Callable[..., Tensor]) -> None:
    def f(self: Tensor, *sizes: Any, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
          pin_memory: bool = False, **named: Any) -> Tensor:
        if named.keys() - {"size", "fill_value"}:
            raise TypeError(f"{f.__name__}: unknown arguments {', '.join(sorted(named.keys() - {'size', 'fill_value'}))}")
        where = self.device if device is None else device
        return maker(*sizes, dtype=dtype or self.dtype, layout=layout, device=where, requires_grad=requires_grad, pin_memory=pin_memory, **named)

    f.__name__ = "new_" + maker.__name__
    f.__doc__ = f"{maker.__name__} with this tensor's dtype, on its device."
    setattr(Tensor, f.__name__, _checks.overridable(f))


for _maker in (make.zeros, make.ones, make.empty, make.full):
    _new(_maker)


# -- attributes -----------------------------------------------------------------------------------

Tensor.device = property(lambda self: device_of(_C._device_index(self)), doc="Where the tensor lives.")
Tensor.is_cuda = property(lambda self: 0 < _C._device_index(self) < META_NUMBER, doc="True on a GPU.")
Tensor.is_cpu = property(lambda self: _C._device_index(self) == 0, doc="True on the CPU.")
Tensor._cdata = property(id, doc="A number of its own while it lives.")
Tensor.is_sparse = property(lambda self: False, doc="Always False: there are dense tensors only.")
Tensor.is_meta = property(lambda self: _C._device_index(self) == META_NUMBER, doc="True on 'meta': it has no values.")
Tensor.layout = property(lambda self: strided, doc="Always ampc.strided.")
Tensor.grad_fn = property(_C._grad_fn, doc="The recorded operation that made it, or None.")
Tensor.mH = Tensor.mT
Tensor.real = property(lambda self: self, doc="Itself: there are real numbers only.")
Tensor.__array_priority__ = 1000  # NumPy leaves mixed operators to us


def _of_a_matrix(self: Tensor) -> Tensor:
    if self.ndim > 2:
        raise RuntimeError(f"H: expected a matrix, got {self.ndim} dimensions; of a batch of matrices take mH")
    return self.mT


Tensor.H = property(_of_a_matrix, doc="A matrix transposed. RuntimeError for any other shape but a number's.")


@method
def element_size(self: Tensor) -> int:
    """Bytes of an element."""
    return self.itemsize


@method
def is_pinned(self: Tensor, device: Any = None) -> bool:
    """True when it lies in page-locked memory of the CPU. ``device``, of which torch's scripts ask, says nothing more: it is pinned for all GPUs."""
    return _C._cuda_is_pinned(self)


@method
def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """A copy in page-locked memory of the CPU, from which ``non_blocking`` copies to a GPU need not wait; the tensor itself
    when it is pinned already, or where there is no GPU to copy to. RuntimeError for a tensor on a GPU."""
    if _C._cuda_count() == 0 or self.is_pinned():
        return self
    return _C._cuda_pin(self)


@method
def record_stream(self: Tensor, stream: Any) -> None:
    """Notes that ``stream`` uses the tensor: freed, its memory is not used again before the stream's work so far is done."""
    _C._cuda_record_stream(self, stream.device_index, stream.cuda_stream)


# -- autograd ---------------------------------------------------------------------------------------


@method
def backward(self: Tensor, gradient: Optional[Tensor] = None, retain_graph: Optional[bool] = None, create_graph: bool = False,
             inputs: Optional[Sequence[Tensor]] = None) -> None:
    """Accumulates the gradient of this tensor into the ``.grad`` of the leaves it was made from.

    ``gradient`` weighs its elements and may be left out for one element. ``retain_graph`` keeps what
    was saved for another backward (default: ``create_graph``); ``create_graph`` records the gradient
    itself, for gradients of gradients; ``inputs`` restricts accumulation to those leaves.
    RuntimeError when the tensor has no history, or the shapes do not fit.
    """
    announce.backward_begins(self)
    _backward(self, gradient, retain_graph, create_graph, inputs=inputs)
    announce.backward_ended(self)


@method
def requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Sets ``requires_grad`` and returns the tensor."""
    self.requires_grad = _checks.flag("requires_grad_", "requires_grad", requires_grad)
    return self


@method
def register_hook(self: Tensor, hook: Callable[[Tensor], Optional[Tensor]]) -> RemovableHandle:
    """Calls ``hook(grad)`` when this tensor's gradient is computed; a tensor it returns replaces the
    gradient. Returns a handle with ``remove()``. RuntimeError unless the tensor requires gradients."""
    hooks, index = _C._hooks(self)
    return RemovableHandle(hooks, (index, hook))


@method
def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Calls ``hook(tensor)`` after a gradient was accumulated into this leaf's ``.grad``."""
    if not self.is_leaf:
        raise RuntimeError("post-accumulate hooks can be registered on leaves only")
    hooks, _ = _C._hooks(self)
    return RemovableHandle(hooks, (-1, hook))


@method
def retain_grad(self: Tensor) -> None:
    """Keeps this tensor's gradient, as its hooks leave it, in ``.grad`` though it is not a leaf; after in-place operations that of its
    value at the end. Does nothing to a leaf. RuntimeError for a tensor that does not require gradients."""
    _C._retain_grad(self)


Tensor.retains_grad = property(_C._retains_grad, doc="True after retain_grad() of what is no leaf.")


# -- in place without an operator --------------------------------------------------------------------------


@method
@_checks.also(to="b", **{"from": "a"})
def uniform_(self: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fills the tensor with numbers uniform on [a, b). RuntimeError unless a <= b, and the dtype holds both and their difference."""
    if not a <= b:
        raise RuntimeError(f"uniform_: `a` must be at most `b`, got {a} and {b}")
    if self.is_floating_point() and max(-a, b, b - a) > finfo(self.dtype).max:
        raise RuntimeError(f"uniform_: {self.dtype} must hold `a`, `b` and their difference, got {a} and {b}")
    return self.copy_(make._random(_ops._uniform, self.shape, a, b, self.dtype, _C._device_index(self), False, generator))


@method
def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fills the tensor with normal numbers. RuntimeError unless std >= 0."""
    if not std >= 0:
        raise RuntimeError(f"normal_: `std` must be 0 or more, got {std}")
    return self.copy_(make._random(_ops._normal, self.shape, mean, std, self.dtype, _C._device_index(self), False, generator))


@method
@_checks.also(to="high", **{"from": "low"})
def random_(self: Tensor, low: Optional[int] = None, high: Optional[int] = None, *, generator: Any = None) -> Tensor:
    """Fills the tensor with integers in [low, high), or in [0, low) if only ``low`` is given; by default with all from 0 on that the dtype
    holds without a gap. RuntimeError if it cannot hold the bounds."""
    if high is None:
        high = make.whole_numbers(self.dtype) if low is None else low
        low = 0
    return self.copy_(make._random(_ops._randint, self.shape, low or 0, high, self.dtype, _C._device_index(self), False, generator))


@method
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Fills the tensor with 1 at probability p, a number or a tensor that broadcasts, else 0. RuntimeError unless 0 <= p <= 1; a tensor on a
    GPU is not looked at, which would be waiting for it."""
    make.need_probabilities("bernoulli_", "p", p)
    draw = make._random(_ops._uniform, self.shape, 0.0, 1.0, _C.float32, _C._device_index(self), False, generator)
    return self.copy_(draw < p)


@method
def set_(self: Tensor, *source: Any, **geometry: Any) -> Tensor:
    """``set_(source, storage_offset, size, stride=None)``: takes over the memory of another tensor or of a storage, the elements from
    ``storage_offset`` on, row by row without a stride. ``set_(source)`` takes all of it; ``set_()`` has none. A storage that is too small
    grows if it can. Counts as a write to this tensor, not to the source.

    TypeError for arguments of other kinds. RuntimeError for a source of another dtype or device, sizes that do not fit, and where gradients
    are recorded for the tensor."""
    from .storage import memory_of

    if self.requires_grad and _C.is_grad_enabled():
        raise RuntimeError("set_: the tensor requires gradients, and other memory would not be its value; use no_grad(), or detach() it")
    if not source and not geometry:
        return self._taken_over(make.empty(0, dtype=self.dtype, device=self.device))
    return self._taken_over(memory_of(self.dtype, *source, **geometry))


# -- shapes -------------------------------------------------------------------------------------------


@method
def squeeze_(self: Tensor, dim: Any = None) -> Tensor:
    """squeeze, in place."""
    return self._turned_into(lambda: self.squeeze() if dim is None else self.squeeze(dim))


@method
def as_strided_(self: Tensor, size: Any, stride: Any, storage_offset: Optional[int] = None) -> Tensor:
    """as_strided, in place: another view of the same memory."""
    return self._turned_into(lambda: self.as_strided(size, stride, storage_offset))


@method
def unsqueeze_(self: Tensor, dim: int) -> Tensor:
    """unsqueeze, in place."""
    return self._turned_into(lambda: self.unsqueeze(dim))


@method
def split(self: Tensor, split_size: Union[int, Sequence[int]], dim: int = 0) -> tuple:
    """Pieces of ``split_size`` along ``dim`` (the last may be smaller), or of the sizes listed."""
    if self.ndim == 0:
        raise RuntimeError("split: a 0-d tensor has no dimension to cut")
    if isinstance(split_size, (list, tuple)):
        return self._cut_into(list(split_size), dim, True)
    n, size = self.size(dim), split_size if isinstance(split_size, int) else _checks.integers(split_size, "split")[0]
    if size < 0 or (size == 0 and n):
        raise RuntimeError(f"split: `split_size` must be 1 or more, got {size}")
    parts, rest = divmod(n, size or 1)
    return self._cut_into([size] * parts + [rest] if rest or not n else [size] * parts, dim, True)


# -- choosing --------------------------------------------------------------------------------------------------


@method
def where(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """self where condition is true, else other."""
    return _ops.where(condition, self, other)


# -- Python's protocols -------------------------------------------------------------------------------------


@method
def __iter__(self: Tensor) -> Any:
    if self.ndim == 0:
        raise TypeError("a 0-d tensor cannot be iterated over")
    return iter(self.unbind(0))


@method
def __reversed__(self: Tensor) -> Tensor:
    """The tensor with its first dimension in the other order; a 0-d one as it is."""
    return self.flip(0) if self.ndim else self


@method
def __contains__(self: Tensor, element: Any) -> bool:
    if not isinstance(element, (Tensor, numbers.Number)):
        raise RuntimeError(f"in: expected a Tensor or a number to look for, got {element.__class__.__name__}")
    return bool((self == element).any())


@method
def __repr__(self: Tensor, *, tensor_contents: Any = None) -> str:
    return tensor_repr(self)


@method
def _repr_html_(self: Tensor) -> str:
    """For notebooks."""
    return tensor_html(self)


@method
def __format__(self: Tensor, spec: str) -> str:
    return tensor_format(self, spec)


@method
def __copy__(self: Tensor) -> Tensor:
    """A leaf on the same memory, with the same attributes, of which only their names are copied; as torch's, without .grad."""
    twin = _C._make_subclass(self.__class__, self.data, self.requires_grad) if self.__class__ is not Tensor else self.data
    twin.requires_grad = self.requires_grad
    for name, value in self.__dict__.items():
        setattr(twin, name, value)
    return twin


@method
def __deepcopy__(self: Tensor, memo: dict, *, grad: bool = True, alone: bool = False) -> Tensor:
    if not self.is_leaf:
        raise RuntimeError("only leaves can be deep-copied: a copy would lose the history; detach() first")
    twin = _copied_memory(self.detach(), memo, alone)
    if self.__class__ is not Tensor:
        twin = _C._make_subclass(self.__class__, twin, False)
    twin.requires_grad = self.requires_grad
    memo[id(self)] = twin
    for name, value in self.__dict__.items():
        setattr(twin, name, copy.deepcopy(value, memo))
    if grad and self.grad is not None:
        twin.grad = copy.deepcopy(self.grad, memo)
    return twin


def _copied_memory(t: Tensor, memo: dict, alone: bool) -> Tensor:
    """A copy of a tensor's values: of these ``alone``; else tensors on the same memory have copies on the same memory, within one deepcopy."""
    if alone or t.is_meta:
        order = _memory_order(t)
        return t.clone() if order is None else _ordered(t.permute(order).clone(), order)
    storage = t.untyped_storage()
    if id(storage) not in memo and t._is_row_major() and t.nbytes == storage.nbytes():
        twin = t.clone()
        memo[id(storage)] = twin.untyped_storage()
        memo.setdefault(id(memo), []).append(storage)  # as copy.deepcopy keeps what it has copied, so that no other gets its id
        return twin
    from .storage import tensor_on

    return tensor_on(copy.deepcopy(storage, memo), t.dtype, t.storage_offset(), t.shape, t.stride())


def _memory_order(t: Tensor) -> Optional[List[int]]:
    """The order in which a tensor's dimensions lie in memory without gaps; None if they lie row by row, or with gaps."""
    if t._is_row_major():
        return None
    order = sorted(range(t.ndim), key=lambda d: (-t.stride(d), -t.shape[d]))
    return order if t.permute(order)._is_row_major() else None


def _ordered(t: Tensor, order: Optional[List[int]]) -> Tensor:
    """A new tensor whose dimensions lie in memory in this order, on the memory of ``t``, which has them in this order."""
    return t if order is None else t.permute([order.index(d) for d in range(t.ndim)]).data


def _rebuild(cls: Any, data: bytes, dt: dtype, shape: tuple, requires_grad: bool, attributes: dict, device: str = "cpu",
             order: Optional[List[int]] = None) -> Tensor:
    """The inverse of pickling: a tensor of these bytes, on the device it was on."""
    sizes = list(shape) if order is None else [shape[d] for d in order]
    return with_attributes(cls, _ordered(_C._tensor_from_bytes(data, dt, sizes).to(device), order), requires_grad, attributes)


def _rebuild_without_values(cls: Any, dt: dtype, shape: tuple, stride: tuple, requires_grad: bool, attributes: dict) -> Tensor:
    """The same of a tensor on 'meta'."""
    from .storage import without_values

    return with_attributes(cls, without_values(dt, shape, stride), requires_grad, attributes)


@method
def __reduce_ex__(self: Tensor, protocol: Any) -> tuple:
    if self.is_meta:
        return _rebuild_without_values, (self.__class__, self.dtype, tuple(self.shape), self.stride(), self.requires_grad, dict(self.__dict__))
    order = _memory_order(self)
    data = _C._tensor_bytes(self if order is None else self.detach().permute(order))
    extra = () if order is None else (order,)  # as before for tensors that lie row by row
    return _rebuild, (self.__class__, data, self.dtype, tuple(self.shape), self.requires_grad, dict(self.__dict__), str(self.device), *extra)
