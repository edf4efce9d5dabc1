"""Optimizers; one pass over all parameters in C each."""

from .adam import Adam, Adamax, AdamW, NAdam
from .adaptive import Adadelta, Adagrad, RMSprop
from .optimizer import Optimizer
from .sgd import SGD

__all__ = ["SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "Optimizer", "RMSprop"]
