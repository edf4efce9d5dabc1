"""Neural networks: modules, their functions, initial values and gradient clipping."""

from . import functional, init, utils
from .module import Module
from .modules import *  # noqa: F403
from .modules import __all__ as _modules
from .parameter import Buffer, Parameter
from .recurrent import GRUCell, LSTMCell, RNNCell

__all__ = ["Buffer", "GRUCell", "LSTMCell", "Module", "Parameter", "RNNCell", "functional", "init", "utils", *_modules]
