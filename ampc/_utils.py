"""Names of torch._utils: what pickles name to make tensors again, and lists of tensors in one buffer, which data-parallel code of other
packages imports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Dict, List, Tuple

from . import _ops
from ._C import Tensor, dtype
from ._tensor.storage import tensor_on, without_values
from .compiler import is_compiling as is_compiling


def _element_size(dtype: dtype) -> int:
    """Bytes of a value."""
    return dtype.itemsize


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    """A tensor on a typed storage: shape, strides and offset in elements. RuntimeError for numbers that do not fit it."""
    return tensor_on(storage, storage.dtype, storage_offset, tuple(size), tuple(stride))


def _rebuild_tensor_v2(storage: Any, storage_offset: int, size: Any, stride: Any, requires_grad: bool, backward_hooks: Any,
                       metadata: Any = None) -> Tensor:
    """_rebuild_tensor, with ``requires_grad`` and hooks of its gradient."""
    return _with_grad(_rebuild_tensor(storage, storage_offset, size, stride), requires_grad, backward_hooks)


def _rebuild_tensor_v3(storage: Any, storage_offset: int, size: Any, stride: Any, requires_grad: bool, backward_hooks: Any, dtype: dtype,
                       metadata: Any = None) -> Tensor:
    """_rebuild_tensor_v2 on a storage of any kind, read as ``dtype``."""
    return _with_grad(tensor_on(storage.untyped(), dtype, storage_offset, tuple(size), tuple(stride)), requires_grad, backward_hooks)


def _rebuild_meta_tensor_no_storage(dtype: dtype, size: Any, stride: Any, requires_grad: bool) -> Tensor:
    """A tensor on 'meta', which has no values."""
    return without_values(dtype, tuple(size), tuple(stride)).requires_grad_(requires_grad)


def _with_grad(t: Tensor, requires_grad: bool, hooks: Any) -> Tensor:
    if requires_grad:
        t.requires_grad_()
        for hook in (hooks or {}).values():
            t.register_hook(hook)
    return t


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Tensor:
    """A parameter on a tensor's memory, with hooks of its gradient."""
    from .nn import Parameter

    p = Parameter(data, requires_grad)
    for hook in (backward_hooks or {}).values():
        p.register_hook(hook)
    return p


def _rebuild_parameter_with_state(data: Tensor, requires_grad: bool, backward_hooks: Any, state: Any) -> Tensor:
    """_rebuild_parameter, with attributes: a dict of them, or a pair of that and one of slots."""
    p = _rebuild_parameter(data, requires_grad, backward_hooks)
    for attributes in state if isinstance(state, tuple) else (state,):
        for name, value in (attributes or {}).items():
            setattr(p, name, value)
    return p


def _flatten_dense_tensors(tensors: Iterable[Tensor]) -> Tensor:
    """All values, row by row, in one tensor of one dimension. The tensors have one dtype and device."""
    return _ops.cat([t.reshape(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Iterable[Tensor]) -> Tuple[Tensor, ...]:
    """Views of ``flat``, which _flatten_dense_tensors gave, with the tensors' shapes."""
    shapes = [t.shape for t in tensors]
    parts, at = [], 0
    for shape in shapes:
        n = shape.numel()
        parts.append(flat.narrow(0, at, n).view(shape))
        at += n
    return tuple(parts)


def _take_tensors(tensors: Iterable[Tensor], size_limit: int) -> Iterator[List[Tensor]]:
    """The tensors in lists of one dtype and device, each of at most that many bytes, or of one tensor."""
    lists: Dict[Any, Tuple[List[Tensor], int]] = {}
    for t in tensors:
        kind, size = (t.dtype, t.device), t.numel() * t.element_size()
        taken, so_far = lists.get(kind, ([], 0))
        if so_far + size > size_limit and so_far > 0:
            yield taken
            taken, so_far = [], 0
        lists[kind] = [*taken, t], so_far + size
    for taken, _ in lists.values():
        yield taken


def _reorder_tensors_as(tensors: Iterable[Tensor], ordered_tensors: Sequence[Tensor]) -> Tuple[Tensor, ...]:
    """The tensors, which are in order for each dtype and device, in the order of ``ordered_tensors``."""
    lists: Dict[Any, List[Tensor]] = {}
    for t in tensors:
        lists.setdefault((t.dtype, t.device), []).append(t)
    queues = {kind: iter(found) for kind, found in lists.items()}
    return tuple(next(queues[t.dtype, t.device]) for t in ordered_tensors)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a GPU: of a device, its name or number; the current one's for None with ``optional``, -1 for the CPU with ``allow_cpu``.
    ValueError for others."""
    from . import cuda
    from ._tensor.device import device as device_type

    if isinstance(device, str):
        device = device_type(device)
    if isinstance(device, device_type):
        if device.type == "cpu" and allow_cpu:
            return -1
        if device.type != "cuda":
            raise ValueError(f"expected a device of type cuda{' or cpu' if allow_cpu else ''}, got {device}")
        device = device.index
        optional = True
    if device is None and optional:
        return cuda.current_device()
    if not isinstance(device, int):
        raise ValueError(f"expected a GPU's number or a device that has one, such as 'cuda:0', got {device!r}")
    return device
