"""The exceptions of ampc that stand for several of torch's, which has more than one type for these mistakes: what catches any of them catches
ampc's. ``OutOfMemoryError`` and ``linalg.LinAlgError`` are where torch has them."""

from ._C import CaptureError, NoGPU, NoNumber, NoTensor, WrongOut
from ._messages.checks import NoWord

__all__ = ["CaptureError", "NoGPU", "NoNumber", "NoTensor", "NoWord", "WrongOut"]
