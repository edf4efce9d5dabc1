"""Settings of the backends, under torch's names."""

from typing import TYPE_CHECKING, Any

from .._names.missing import absent_from
from . import cpu, cuda, cudnn
from ._unsupported import put_modules

put_modules(globals())

if TYPE_CHECKING:
    def __getattr__(name: str) -> Any: ...  # what `put_modules` has made
else:
    __getattr__ = absent_from(__name__)

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum", "quantized", "xeon"]  # noqa: F822
