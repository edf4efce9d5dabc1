"""Tensors on memory that Python's buffers and files hold."""

from __future__ import annotations

import os
from typing import Any, Optional

from .. import _C
from .._C import Tensor, dtype
from .._messages import checks as _checks


def frombuffer(buffer: Any, *, dtype: dtype, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A vector of ``count`` values (-1: all) on the memory of an object with Python's buffer protocol, from byte ``offset`` on. It is copied,
    with a UserWarning, where it is read-only. ValueError for what does not fit, and for values that are not aligned."""
    import numpy as np

    try:
        length = memoryview(buffer).nbytes
    except TypeError as error:
        raise ValueError(f"frombuffer: expected an object with Python's buffer protocol, got {type(buffer).__name__}") from error
    size = dtype.itemsize
    if not 0 <= offset < length or count == 0:
        raise ValueError(f"frombuffer: `offset` must be within the {length} bytes of the buffer, and `count` not 0, got {offset} and {count}")
    if count < 0 and (length - offset) % size or offset + count * size > length:
        raise ValueError(f"frombuffer: {'all' if count < 0 else count} values of {size} bytes from byte {offset} on do not fit {length} bytes")
    kind = np.int16 if dtype is _C.bfloat16 else np.dtype(dtype.name)
    t = _C.from_numpy(np.frombuffer(buffer, kind, max(count, -1), offset))
    t = t.view(dtype) if dtype is _C.bfloat16 else t
    return t.requires_grad_() if requires_grad else t


def from_file(filename: str, shared: Optional[bool] = None, size: int = 0, *, dtype: Optional[dtype] = None, requires_grad: bool = False) -> Tensor:
    """A vector of ``size`` values on the memory of a file. With ``shared``, what is written into it goes to the file, which is made, and made
    longer, as needed. RuntimeError for a file that is too short."""
    import mmap

    dtype = dtype or _C.get_default_dtype()
    wanted = size * dtype.itemsize
    file = os.open(filename, os.O_RDWR | os.O_CREAT if shared else os.O_RDONLY, 0o666)
    try:
        if os.fstat(file).st_size < wanted:
            if not shared:
                raise RuntimeError(f"from_file: {filename} has {os.fstat(file).st_size} bytes, {size} values need {wanted}")
            os.ftruncate(file, wanted)
        memory = mmap.mmap(file, wanted, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY)
    finally:
        os.close(file)
    return frombuffer(memory, dtype=dtype, count=size, requires_grad=requires_grad)


_checks.install(globals())
