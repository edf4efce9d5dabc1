"""Names of types for annotations, as torch.types has them."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import Any, Union

from ._C import Tensor, dtype
from ._tensor.device import Size, device

Number = Union[builtins.int, builtins.float, builtins.bool]
Device = Union[device, str, int, None]
FileLike = Union[str, "os.PathLike[str]", Any]
_TensorOrTensors = Union[Tensor, Sequence[Tensor]]
_dtype, _device, _size = dtype, device, Union[Size, Sequence[int]]
_bool, _int, _float = builtins.bool, builtins.int, builtins.float

__all__ = ["Device", "FileLike", "Number"]
