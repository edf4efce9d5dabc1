"""The names of parameters and modules, under the path that ``amp/grad_scaler.py`` takes them from."""

from .._model_names import Names

__all__ = ["Names"]
