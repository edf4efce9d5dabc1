"""The names of parameters and modules, as reports give them."""

from .._model_names import Names

__all__ = ["Names"]
