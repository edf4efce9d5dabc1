"""Settings of the backends, under torch's names."""

from typing import TYPE_CHECKING, Any

from . import cpu, cuda, cudnn
from ._unsupported import install

install(globals())

if TYPE_CHECKING:
    def __getattr__(name: str) -> Any: ...  # what `install` has made

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum", "quantized", "xeon"]  # noqa: F822
