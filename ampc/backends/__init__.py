"""Settings of the backends, under torch's names."""

from . import cpu, cuda, cudnn
from ._unsupported import install

install(globals())

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum", "quantized", "xeon"]  # noqa: F822
