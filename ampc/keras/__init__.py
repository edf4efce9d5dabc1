"""A small Keras on ampc: a policy says what layers compute in, ``fit`` trains. Scripts for ``tf.keras`` or ``keras`` that use no more than
this run by their import line alone: ``import ampc as tf``, ``from ampc.keras import layers, models``."""

from . import layers, losses, mixed_precision, models, optimizers
from .layers import Input, Layer
from .mixed_precision import LossScaleOptimizer, Policy
from .models import History, Sequential

DTypePolicy = Policy

__all__ = ["DTypePolicy", "History", "Input", "Layer", "LossScaleOptimizer", "Policy", "Sequential", "layers", "losses", "mixed_precision",
           "models", "optimizers"]
