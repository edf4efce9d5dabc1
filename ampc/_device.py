"""Devices and sizes: small value types that tensors hand out."""

from __future__ import annotations

from typing import Any, Optional, Union

from . import _C


class Size(tuple):
    """The sizes of a tensor: a tuple of ints that knows its product."""

    __slots__ = ()

    def numel(self) -> int:
        """Number of elements of a tensor of these sizes."""
        n = 1
        for size in self:
            n *= size
        return n

    def __getitem__(self, index: Any) -> Any:
        part = tuple.__getitem__(self, index)
        return Size(part) if isinstance(index, slice) else part

    def __repr__(self) -> str:
        return f"ampc.Size({list(self)})"


_C._set_size_type(Size)


class device:
    """Where a tensor lives: ``device('cpu')``, ``device('cuda:0')``, ``device('cuda', 0)``.

    Also a context manager, accepted for scripts that use it so.
    """

    __slots__ = ("type", "index")
    type: str
    index: Optional[int]

    def __init__(self, type: Any, index: Optional[int] = None) -> None:
        if isinstance(type, device):
            type, index = type.type, type.index
        elif isinstance(type, int) and not isinstance(type, bool):
            type, index = "cuda", type
        if not isinstance(type, str):
            raise TypeError(f"device: expected a string such as 'cpu' or 'cuda:0', got {type.__class__.__name__}")
        name, _, number = type.partition(":")
        if name not in ("cpu", "cuda", "meta", "mps", "xpu") or (number and not number.isdigit()):
            raise RuntimeError(f"device: '{type}' is not a device; expected 'cpu' or 'cuda', with ':index' if wanted")
        self.type = name
        self.index = int(number) if number else index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"device(type='{self.type}'" + ("" if self.index is None else f", index={self.index}") + ")"

    def __reduce__(self) -> Any:
        return device, (self.type, self.index)

    def __enter__(self) -> device:
        check_device(self)
        return self

    def __exit__(self, *exc: object) -> None:
        return None


CPU = device("cpu")
_default = CPU


def check_device(where: Union[str, int, device, None]) -> device:
    """The device asked for, or a RuntimeError when it cannot be used here."""
    if where is None:
        return _default
    d = where if isinstance(where, device) else device(where)
    if d.type != "cpu":
        raise RuntimeError(
            f"device '{d}' cannot be used: this build of ampc computes on the CPU; "
            "use device='cpu', or test cuda.is_available() first"
        )
    return CPU


def set_default_device(where: Union[str, device, None]) -> None:
    """Sets where new tensors are made. RuntimeError for a device that is not there."""
    global _default
    _default = check_device(CPU if where is None else where)


def get_default_device() -> device:
    """Where new tensors are made."""
    return _default
