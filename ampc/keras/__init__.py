"""A small Keras on ampc: a policy sets the precision of layers, and ``fit`` trains.

Scripts for ``tf.keras`` or ``keras`` that use only these names need one changed line: ``import ampc as tf``, or
``from ampc.keras import layers, models``."""

from . import layers, losses, mixed_precision, models, optimizers
from .layers import Input, Layer
from .mixed_precision import LossScaleOptimizer, Policy
from .models import History, Sequential

DTypePolicy = Policy

__all__ = ["DTypePolicy", "History", "Input", "Layer", "LossScaleOptimizer", "Policy", "Sequential", "layers", "losses", "mixed_precision",
           "models", "optimizers"]
