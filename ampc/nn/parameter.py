"""Parameter: a tensor that modules collect and optimizers train."""

from __future__ import annotations

from typing import Any, Optional

from .. import _C
from .. import _creation as make
from .._C import Tensor


class Parameter(Tensor):
    """A leaf that requires gradients (unless told otherwise) and registers itself with the Module it is
    assigned to. Shares ``data``'s memory."""

    def __new__(cls, data: Optional[Tensor] = None, requires_grad: bool = True) -> Any:
        data = make.zeros(0) if data is None else data
        if not isinstance(data, Tensor):
            raise _C.NoTensor(f"Parameter: expected a Tensor, got {type(data).__name__}")
        if not isinstance(requires_grad, int):
            raise TypeError(f"Parameter: `requires_grad` must be a bool, got {type(requires_grad).__name__}")
        return _C._make_subclass(cls, data.detach(), requires_grad)

    def __deepcopy__(self, memo: dict, *, grad: bool = False) -> Parameter:
        """A parameter of the same values; as torch's, without .grad: a copied model begins with none."""
        if id(self) not in memo:
            Tensor.__deepcopy__(self, memo, grad=grad)
        return memo[id(self)]


class Buffer(Tensor):
    """A tensor that is part of a module's state but not trained; assign it to register it."""

    persistent: bool

    def __new__(cls, data: Optional[Tensor] = None, *, persistent: bool = True) -> Any:
        buffer = _C._make_subclass(cls, make.zeros(0) if data is None else data.detach(), False)
        buffer.persistent = persistent
        return buffer
