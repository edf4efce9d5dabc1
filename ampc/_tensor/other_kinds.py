"""Attributes and methods of Tensor that torch has for other kinds of tensors, or from older times. Attached to the C type here."""

from __future__ import annotations

from typing import Any, NoReturn, Tuple, Union

from .. import _C
from .._C import Tensor
from .._messages.callers import warn
from . import creation as make
from .device import channels_last, channels_last_3d, memory_format
from .methods import method

for _name in ("is_ipu", "is_maia", "is_mkldnn", "is_mps", "is_mtia", "is_nested", "is_quantized", "is_sparse_csr", "is_vulkan", "is_xla", "is_xpu"):
    setattr(Tensor, _name, property(lambda self: False, doc="Always False: there are dense tensors of the CPU and of CUDA only."))
Tensor.name = property(lambda self: None, doc="Always None.")


def _set_volatile(self: Tensor, value: Any) -> None:
    warn("volatile has no effect any more; write `with no_grad():`")


Tensor.volatile = property(lambda self: False, _set_volatile, doc="Always False.")


def _grad_dtype(self: Tensor) -> Any:
    if not self.is_leaf:
        raise RuntimeError("grad_dtype: only leaves have one")
    return self.dtype


Tensor.grad_dtype = property(_grad_dtype, doc="The dtype of `.grad`: the leaf's own.")


@method
def is_distributed(self: Tensor) -> bool:
    """False."""
    return False


@method
def const_data_ptr(self: Tensor) -> int:
    """data_ptr()"""
    return self.data_ptr()


@method
def untyped_storage(self: Tensor) -> Any:
    """The bytes that it is a view of. Two tensors share memory exactly when this is the same object."""
    from ..storage import UntypedStorage

    return _C._storage_of(UntypedStorage, self)


@method
def storage(self: Tensor) -> Any:
    """The memory that it is a view of, as values of its dtype: torch's older interface."""
    from ..storage import typed_storage

    return typed_storage(self)


Tensor._typed_storage = storage  # type: ignore[method-assign]


@method
def storage_type(self: Tensor) -> Any:
    """The class of its storage: FloatStorage and so on."""
    from ..storage import legacy_storages

    return legacy_storages(self.device.type)[self.storage().pickle_storage_type()]


@method
def is_shared(self: Tensor) -> bool:
    """Whether other processes see what is written into its memory: see share_memory_."""
    return self.untyped_storage().is_shared()


@method
def share_memory_(self: Tensor) -> Tensor:
    """Moves its memory to where other processes see it, and what they write is seen here: processes forked from this one, and those that get
    it through ``multiprocessing``, as an argument or by a queue, while this process runs. NotImplementedError on a system that does not fork."""
    from .shared_memory import register_kinds

    self.untyped_storage().share_memory_()
    register_kinds(type(self))
    return self


@method
def as_subclass(self: Tensor, cls: Any) -> Tensor:
    """The same values and history as an object of a subclass of Tensor."""
    if not isinstance(cls, type) or not issubclass(cls, Tensor):
        raise TypeError(f"as_subclass: expected a subclass of Tensor, got {cls!r:.60}")
    y = self.view(self.shape)
    y.__class__ = cls
    return y


@method
def dim_order(self: Tensor, *, ambiguity_check: Union[bool, list] = False) -> Tuple[int, ...]:
    """Dimensions in the order of memory, the farthest apart first. RuntimeError with ``ambiguity_check`` where others would do as well, or,
    for a list of memory formats, where not just one of these fits."""
    steps = self.stride()
    order = tuple(sorted(range(self.ndim), key=lambda d: -steps[d]))
    clear = len({0, *steps}) == self.ndim + 1 and (self.ndim < 2 or min(self.shape) > 1)
    if clear or ambiguity_check is False:
        return order
    formats = ambiguity_check if isinstance(ambiguity_check, list) else []
    if not all(isinstance(f, memory_format) for f in formats):
        raise TypeError(f"dim_order: `ambiguity_check` must be a bool or a list of memory formats, got {formats}")
    fitting = [f for f in formats if f.ndim in (0, self.ndim) and self.is_contiguous(memory_format=f)]
    if len(fitting) != 1:
        raise RuntimeError(f"dim_order: shape {list(self.shape)} with strides {list(steps)} has no order that is the only one")
    return (0, *range(2, self.ndim), 1) if fitting[0] in (channels_last, channels_last_3d) else tuple(range(self.ndim))


@method
def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What ``load_state_dict`` does with a value: copies it in, or gives it as it is with ``assign``."""
    return other.detach() if assign else self.detach().copy_(other)


@method
def resize(self: Tensor, *sizes: Any) -> Tensor:
    """reshape, by its older name. RuntimeError for another number of elements."""
    warn("resize is deprecated: write reshape, or resize_")
    return self.reshape(make._size(sizes))


@method
def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """reshape to another's shape, by its older name."""
    warn("resize_as is deprecated: write reshape_as, or resize_as_")
    return self.reshape(tensor.shape)


def _removed(name: str, instead: str) -> None:
    def f(self: Tensor, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"Tensor.{name} was removed, from torch, too: {instead}")

    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"RuntimeError: {instead}."
    setattr(Tensor, name, f)


_removed("eig", "write linalg.eig(A), of which eigenvalues that are not real are complex")
_removed("symeig", "write linalg.eigvalsh(A), or linalg.eigh(A) for eigenvectors too; both read the lower triangle, and with UPLO='U' the upper one")
_removed("lstsq", "write linalg.lstsq(A, B), whose arguments are the other way round")
_removed("solve", "write linalg.solve(A, B), whose arguments are the other way round")
_removed("reinforce", "draw actions from a distribution of ampc.distributions, and weigh -log_prob(action) by the reward")


def _defined(cls: type, **options: Any) -> None:
    """A subclass that asks to intercept functions is told that it will not."""
    super(Tensor, cls).__init_subclass__(**options)  # type: ignore[misc]
    own = vars(cls).keys() & {"__torch_function__", "__torch_dispatch__"}
    if own and not getattr(vars(cls)[min(own)], "__name__", "").startswith("_disabled"):
        warn(f"{cls.__name__}.{min(own)} is never called: ampc's operators are in C, and give plain Tensors; override the methods that "
             "should do something else")


Tensor.__init_subclass__ = classmethod(_defined)  # type: ignore[assignment]
