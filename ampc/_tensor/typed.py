"""Tensor types by name, torch's older interface: ``LongTensor([1, 2])``, ``FloatTensor(3, 4)``, ``isinstance(x, HalfTensor)``."""

from __future__ import annotations

import re
from typing import Any

from .. import _C
from .._C import Tensor
from . import creation as make
from .device import Size


class TensorType(type):
    """A name for tensors of one dtype on one kind of device."""

    dtype: Any
    on: str
    type_name: str

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Tensor) and x.dtype is cls.dtype and x.device.type == cls.on

    def __call__(cls, *args: Any) -> Tensor:
        """From sizes, or a ``Size``: a tensor of those, its values undefined; from a list or an array: its values;
        from a tensor: its memory where dtype and device agree, without history; from a storage: its memory."""
        if len(args) == 1 and isinstance(args[0], Size):
            args = args[0]
        if all(isinstance(a, int) and not isinstance(a, bool) for a in args):
            return make.empty(*(args or (0,)), dtype=cls.dtype, device=cls.on)
        if len(args) != 1:
            raise TypeError(f"{cls.type_name}: expected sizes, or one list, array or tensor, got {len(args)} arguments")
        if isinstance(args[0], Tensor):
            return args[0].detach().to(cls.on, cls.dtype)
        from ..storage import TypedStorage
        from .storage import UntypedStorage, tensor_on

        if isinstance(args[0], (UntypedStorage, TypedStorage)):
            return tensor_on(args[0], cls.dtype)
        return make.tensor(args[0], dtype=cls.dtype, device=cls.on)


_KINDS = {"Half": _C.float16, "BFloat16": _C.bfloat16, "Float": _C.float32, "Double": _C.float64, "Byte": _C.uint8, "Char": _C.int8,
          "Short": _C.int16, "Int": _C.int32, "Long": _C.int64, "Bool": _C.bool}


def name_of(x: Tensor) -> str:
    """The name of a tensor's type as torch says it: 'torch.FloatTensor', 'torch.cuda.HalfTensor'."""
    kind = next(kind for kind, dtype in _KINDS.items() if dtype is x.dtype)
    return f"torch.{'' if x.is_cpu else x.device.type + '.'}{kind}Tensor"


def typed(x: Tensor, kind: Any, non_blocking: bool = False) -> Tensor:
    """The tensor as a dtype, a type or a type's name says. ValueError for a name that is none."""
    if isinstance(kind, str):
        found = re.fullmatch(r"(?:torch|ampc)\.(cuda\.)?(\w+)Tensor", kind)
        if found is None or found[2] not in _KINDS:
            raise ValueError(f"invalid type: '{kind}'")
        return x.to("cuda" if found[1] else "cpu", _KINDS[found[2]], non_blocking=non_blocking)
    if kind is Tensor:  # the type of the default dtype
        kind = _C.get_default_dtype()
    where = (kind.on, kind.dtype) if isinstance(kind, TensorType) else (kind,)
    return x.to(*where, non_blocking=non_blocking)


def types_of(on: str) -> dict:
    """The types of a device by name: HalfTensor and so on."""
    prefix = "torch." if on == "cpu" else f"torch.{on}."
    return {f"{kind}Tensor": TensorType(f"{kind}Tensor", (), {"dtype": dtype, "on": on, "type_name": f"{prefix}{kind}Tensor"})
            for kind, dtype in _KINDS.items()}
