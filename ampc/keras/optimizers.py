"""Optimizers by Keras' names and options, for ``compile``: ``Adam(learning_rate=1e-3)``."""

from ._lookup import OPTIMIZERS
from .mixed_precision import LossScaleOptimizer

SGD, Adam, AdamW, Adamax = OPTIMIZERS["sgd"], OPTIMIZERS["adam"], OPTIMIZERS["adamw"], OPTIMIZERS["adamax"]
Nadam, RMSprop, Adagrad, Adadelta = OPTIMIZERS["nadam"], OPTIMIZERS["rmsprop"], OPTIMIZERS["adagrad"], OPTIMIZERS["adadelta"]

__all__ = ["SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "LossScaleOptimizer", "Nadam", "RMSprop"]
