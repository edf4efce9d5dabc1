"""Neural networks: modules, their functions, initial values and what works on modules (`utils`)."""

from typing import TYPE_CHECKING

from . import functional, init, modules
from .modules import *  # noqa: F403
from .modules.module import Module
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter, factory_kwargs

from . import attention, parallel, utils  # isort: skip  # these are made of modules
from .parallel import DataParallel

__all__ = ["Buffer", "DataParallel", "Module", "Parameter", "UninitializedBuffer", "UninitializedParameter", "attention", "factory_kwargs",
           "functional", "init", "parallel", "utils"]

if TYPE_CHECKING:
    from .modules.adaptive import *  # noqa: F403
    from .modules.lazy import *  # noqa: F403
else:
    __all__ += modules.__all__
    __getattr__ = modules.__getattr__
