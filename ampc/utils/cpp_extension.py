"""torch.utils.cpp_extension's names. They build against torch's C++ library, which ampc has nothing of: all of them refuse."""

from __future__ import annotations

from typing import Any, List, NoReturn, Optional

__all__ = ["BuildExtension", "CUDAExtension", "CUDA_HOME", "CppExtension", "include_paths", "load", "load_inline"]

CUDA_HOME: Optional[str] = None


def _refused(what: str) -> NotImplementedError:
    return NotImplementedError(f"utils.cpp_extension.{what}: extensions in C++ for torch need torch's own library, and ampc's core is in C. Write it "
                               "with ampc's operators, as an autograd.Function, or with another library that shares memory by DLPack or NumPy")


def CppExtension(name: str, sources: List[str], *args: Any, **kwargs: Any) -> NoReturn:
    """NotImplementedError, with what to do instead."""
    raise _refused("CppExtension")


def CUDAExtension(name: str, sources: List[str], *args: Any, **kwargs: Any) -> NoReturn:
    """NotImplementedError, with what to do instead."""
    raise _refused("CUDAExtension")


def load(name: str, sources: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """NotImplementedError, with what to do instead."""
    raise _refused("load")


def load_inline(name: str, cpp_sources: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """NotImplementedError, with what to do instead."""
    raise _refused("load_inline")


def include_paths(*args: Any, **kwargs: Any) -> NoReturn:
    """NotImplementedError, with what to do instead."""
    raise _refused("include_paths")


class BuildExtension:
    """NotImplementedError when it is used, with what to do instead."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise _refused("BuildExtension")

    @classmethod
    def with_options(cls, **options: Any) -> NoReturn:
        """NotImplementedError, with what to do instead."""
        raise _refused("BuildExtension")
