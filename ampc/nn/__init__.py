"""Neural networks: modules, their functions, initial values and gradient clipping."""

from . import functional, init, utils
from .module import Module
from .modules import *  # noqa: F403
from .modules import __all__ as _modules
from .parameter import Buffer, Parameter

__all__ = ["Buffer", "Module", "Parameter", "functional", "init", "utils", *_modules]
