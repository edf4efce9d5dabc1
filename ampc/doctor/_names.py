"""The names of parameters and modules, as reports give them."""

from .._messages.model_names import Names

__all__ = ["Names"]
