"""Lazy modules: layers that take the size of their input from the first one that comes, and are ordinary layers from then on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Dict, Optional, Tuple, Type, Union

from ... import _C
from ..._C import Tensor
from ..._tensor import creation as make
from ..parameter import UninitializedBuffer, UninitializedParameter, is_lazy
from .batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, _ConvNd
from .instancenorm import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, _InstanceNorm
from .linear import Linear
from .module import Module

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d",
    "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear",
]

_Sizes = Union[int, Sequence[int]]


class LazyModuleMixin(Module):
    """Beside a Module whose ``initialize_parameters(*inputs)`` materializes what is uninitialized. That is called with the first inputs;
    then the module becomes one of ``cls_to_become``, where that is given. Saved and loaded, uninitialized parameters stay as they are."""

    cls_to_become: Optional[Type[Any]] = None

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not define initialize_parameters")

    def _waiting(self) -> Dict[str, Any]:
        return {name: t for members in (self._parameters, self._buffers) for name, t in members.items() if is_lazy(t)}

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer has no size yet."""
        return bool(self._waiting())

    def _ampc_call(self, args: tuple, kwargs: dict) -> Any:
        if not self.__dict__.get("_initialized"):
            self.initialize_parameters(*args, **kwargs)
            if self.has_uninitialized_params():
                raise RuntimeError(f"{self._get_name()}: initialize_parameters has left {', '.join(self._waiting())} uninitialized")
            if self.cls_to_become is not None:
                self.__class__ = self.cls_to_become
                return self._ampc_call(args, kwargs)
            self.__dict__["_initialized"] = True
        return super()._ampc_call(args, kwargs)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Module:
        waiting = self._waiting()
        for members in (self._parameters, self._buffers):
            members.update(dict.fromkeys(members.keys() & waiting.keys()))
        try:
            super()._apply(fn, recurse)
        finally:
            for name, t in waiting.items():
                (self._parameters if name in self._parameters else self._buffers)[name] = t
        for t in waiting.values():
            t.data = fn(make.empty(0, device=t.device, dtype=t.dtype)).clone()
            t._wait()
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination.update({prefix + name: t for name, t in self._waiting().items() if name not in self._non_persistent_buffers_set})

    def _load_one(self, kind: str, name: str, value: Any, assign: bool) -> None:
        own = self._waiting().get(name)
        if own is not None and not is_lazy(value):
            own.materialize(value.shape)
        super()._load_one(kind, name, value, assign)


class _Lazy(LazyModuleMixin):
    """A layer of the package whose one size, ``_size``, comes from the input."""

    _size = ""

    def __init_subclass__(cls, becomes: Optional[Type[Any]] = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.cls_to_become = becomes or cls.cls_to_become

    def _wait_for(self, device: Any, dtype: Any, *names: str) -> None:
        for name in names:
            setattr(self, name, UninitializedParameter(device=device, dtype=dtype))

    def _size_of(self, input: Tensor) -> int:
        raise NotImplementedError

    def _shapes(self) -> Dict[str, Tuple[int, ...]]:
        raise NotImplementedError

    def reset_parameters(self) -> None:
        """Draws the parameters again, where there are any yet."""
        if not self.has_uninitialized_params() and getattr(self, self._size):
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Takes the size of the input; forward's other arguments, such as ``output_size``, have none to give."""
        setattr(self, self._size, self._size_of(input))
        waiting = self._waiting()
        for name, t in waiting.items():
            t.materialize(self._shapes()[name])
        if waiting:
            self.reset_parameters()


class LazyLinear(_Lazy, Linear, becomes=Linear):
    """Linear, its ``in_features`` taken from the first input."""

    _size = "in_features"

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        self._wait_for(device, dtype, *(["weight", "bias"] if bias else ["weight"]))

    def _size_of(self, input: Tensor) -> int:
        return input.shape[-1]

    def _shapes(self) -> Dict[str, Tuple[int, ...]]:
        return {"weight": (self.out_features, self.in_features), "bias": (self.out_features,)}


class _LazyConv(_Lazy, _ConvNd):
    _size = "in_channels"

    def __init__(self, out_channels: int, kernel_size: _Sizes, stride: _Sizes = 1, padding: Any = 0, dilation: _Sizes = 1, groups: int = 1,
                 bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self._wait_for_channels(out_channels, bias, device, dtype)

    def _wait_for_channels(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.out_channels = out_channels
        self._wait_for(device, dtype, *(["weight", "bias"] if bias else ["weight"]))

    def _size_of(self, input: Tensor) -> int:
        if input.ndim not in (self._dims + 1, self._dims + 2):
            raise RuntimeError(f"{type(self).__name__}: expected {self._dims + 1} or {self._dims + 2} dimensions ([N,] C, ...), got shape "
                               f"{list(input.shape)}")
        return input.shape[-self._dims - 1]

    def _shapes(self) -> Dict[str, Tuple[int, ...]]:
        into, out, groups = self.in_channels, self.out_channels, self.groups
        if into % groups or out % groups:
            raise ValueError(f"{type(self).__name__}: {groups} groups do not divide {into} channels in and {out} out")
        channels = (into, out // groups) if self._transposed else (out, into // groups)
        return {"weight": (*channels, *self.kernel_size), "bias": (out,)}


class _LazyConvTranspose(_LazyConv):
    def __init__(self, out_channels: int, kernel_size: _Sizes, stride: _Sizes = 1, padding: _Sizes = 0, output_padding: _Sizes = 0, groups: int = 1,
                 bias: bool = True, dilation: _Sizes = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None) -> None:
        super(_LazyConv, self).__init__(0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode)
        self._wait_for_channels(out_channels, bias, device, dtype)


class _LazyNorm(_Lazy):
    _size = "num_features"

    def __init__(self, eps: float = 1e-5, momentum: Optional[float] = 0.1, affine: bool = True, track_running_stats: bool = True,
                 device: Any = None, dtype: Any = None, *, bias: bool = True) -> None:
        super().__init__(0, eps, momentum, False, False)
        self.affine, self.track_running_stats = affine, track_running_stats
        self._wait_for(device, dtype, *(["weight", "bias"] if bias else ["weight"])[:2 * affine])
        if track_running_stats:
            for name in ("running_mean", "running_var"):
                setattr(self, name, UninitializedBuffer(device=device, dtype=dtype))
            self.num_batches_tracked = make.zeros((), dtype=_C.int64, device=device)

    def _size_of(self, input: Tensor) -> int:
        alone = isinstance(self, _InstanceNorm) and input.ndim == min(self._dims)
        return input.shape[0 if alone else 1]

    def _shapes(self) -> Dict[str, Tuple[int, ...]]:
        return dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (self.num_features,))


class LazyConv1d(_LazyConv, Conv1d, becomes=Conv1d):
    """Conv1d, its ``in_channels`` taken from the first input."""


class LazyConv2d(_LazyConv, Conv2d, becomes=Conv2d):
    """Conv2d, its ``in_channels`` taken from the first input."""


class LazyConv3d(_LazyConv, Conv3d, becomes=Conv3d):
    """Conv3d, its ``in_channels`` taken from the first input."""


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d, becomes=ConvTranspose1d):
    """ConvTranspose1d, its ``in_channels`` taken from the first input."""


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d, becomes=ConvTranspose2d):
    """ConvTranspose2d, its ``in_channels`` taken from the first input."""


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d, becomes=ConvTranspose3d):
    """ConvTranspose3d, its ``in_channels`` taken from the first input."""


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d, becomes=BatchNorm1d):
    """BatchNorm1d, its ``num_features`` taken from the first input."""


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d, becomes=BatchNorm2d):
    """BatchNorm2d, its ``num_features`` taken from the first input."""


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d, becomes=BatchNorm3d):
    """BatchNorm3d, its ``num_features`` taken from the first input."""


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d, becomes=InstanceNorm1d):
    """InstanceNorm1d, its ``num_features`` taken from the first input."""


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d, becomes=InstanceNorm2d):
    """InstanceNorm2d, its ``num_features`` taken from the first input."""


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d, becomes=InstanceNorm3d):
    """InstanceNorm3d, its ``num_features`` taken from the first input."""
