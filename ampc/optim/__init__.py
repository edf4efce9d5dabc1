"""Optimizers, one pass over all parameters in C each (but those of lbfgs and composed), and schedules of their rates."""

from typing import TYPE_CHECKING, Any

from .._names.missing import absent_from
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

if TYPE_CHECKING:
    from . import swa_utils as swa_utils
else:
    def __getattr__(name: str) -> Any:
        if name == "swa_utils":  # loaded when it is asked for
            import importlib

            return importlib.import_module("ampc.optim.swa_utils")
        return absent_from(__name__)(name)

    def __dir__() -> list:
        return sorted({*globals(), "swa_utils"})
