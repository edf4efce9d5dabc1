"""Settings of libraries that ampc does not use. They report that, and scripts can set them without effect."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Iterator


class Absent(ModuleType):
    """A backend's module with the usual names. Its switches can be set, for a library that will not be asked."""

    def __init__(self, name: str, doc: str, **names: Any) -> None:
        super().__init__(f"ampc.backends.{name}", doc)
        self.__dict__.update(names, __file__=__file__)

    def is_available(self) -> bool:
        return False

    def is_built(self) -> bool:
        return False


@contextmanager
def _flags(*args: Any, **kwargs: Any) -> Iterator[None]:
    """Switches for a library that is not there, inside a with statement: nothing changes."""
    yield


def _never(*_args: Any) -> bool:
    """False: this is not asked of the machine."""
    return False


def _modules() -> dict:
    return {
        "mps": Absent("mps", "Apple's GPUs: not used.", is_macos_or_newer=_never),
        "mkl": Absent("mkl", "Intel's BLAS: not used, products are ampc's own.", verbose=_flags, VERBOSE_OFF=0, VERBOSE_ON=1),
        "mkldnn": Absent("mkldnn", "oneDNN: not used, products and convolutions are ampc's own.", enabled=False, deterministic=True, flags=_flags,
                         allow_tf32=False, verbose=_flags, VERBOSE_OFF=0, VERBOSE_ON=1),
        "openmp": Absent("openmp", "OpenMP: not used, threads are ampc's own."),
        "opt_einsum": Absent("opt_einsum", "opt_einsum: not used, einsum finds its own order.", enabled=False, strategy=None),
        "xeon": Absent("xeon", "Launch scripts for Xeons: not used."),
        "quantized": Absent("quantized", "Quantised operators: there are none.", engine="none", supported_engines=["none"]),
    }


def put_modules(into: dict) -> None:
    for name, module in _modules().items():
        into[name] = sys.modules[f"ampc.backends.{name}"] = module
