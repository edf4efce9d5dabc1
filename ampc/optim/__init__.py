"""Optimizers, one pass over all parameters in C each (but those of lbfgs and composed), and schedules of their rates."""

from typing import TYPE_CHECKING

from .._missing import absent_from
from . import lr_scheduler
from .adam import Adam, Adamax, AdamW, NAdam, RAdam
from .adaptive import Adadelta, Adagrad, RMSprop, Rprop
from .composed import ASGD, Adafactor, Muon
from .lbfgs import LBFGS
from .lr_scheduler import get_cosine_schedule_with_warmup
from .optimizer import Optimizer
from .sgd import SGD

__all__ = ["ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "Optimizer", "RAdam", "RMSprop",
           "Rprop", "get_cosine_schedule_with_warmup", "lr_scheduler"]

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
