"""Neural networks: modules, their functions, initial values and what works on modules (`utils`)."""

from . import functional, init
from .module import Module
from .modules import *  # noqa: F403
from .modules import __all__ as _modules
from .parameter import Buffer, Parameter

from . import utils  # isort: skip  # its parametrizations are modules

__all__ = ["Buffer", "Module", "Parameter", "functional", "init", "utils", *_modules]
