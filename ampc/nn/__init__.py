"""Neural networks: modules, their functions, initial values and what works on modules (`utils`)."""

import importlib as _importlib
from typing import TYPE_CHECKING
from typing import Any as _Any

from . import functional, init, modules
from .modules import *  # noqa: F403
from .modules.module import Module
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter, factory_kwargs

from . import parallel  # isort: skip  # it is made of modules
from .parallel import DataParallel

__all__ = ["Buffer", "DataParallel", "Module", "Parameter", "UninitializedBuffer", "UninitializedParameter", "attention", "factory_kwargs",
           "functional", "grad", "init", "parallel", "utils"]

if TYPE_CHECKING:
    from . import attention as attention
    from . import grad as grad
    from . import utils as utils
    from .modules.adaptive import *  # noqa: F403
    from .modules.lazy import *  # noqa: F403
else:
    __all__ += modules.__all__
    _PARTS = ("attention", "common_types", "grad", "utils")

    def __getattr__(name: str) -> _Any:
        """Some parts and modules are loaded when they are first asked for."""
        return _importlib.import_module(f"{__name__}.{name}") if name in _PARTS else modules.__getattr__(name)

    def __dir__() -> list:
        return sorted({*globals(), *_PARTS, *modules.LATER})
