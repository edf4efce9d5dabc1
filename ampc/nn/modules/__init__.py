"""Layers, containers and losses, in files that are named as torch's."""

from typing import TYPE_CHECKING, Any

from ..._names.missing import absent_from
from .._linear_cross_entropy import LinearCrossEntropyOptions as LinearCrossEntropyOptions
from .activation import *
from .batchnorm import *
from .channelshuffle import *
from .container import *
from .conv import *
from .distance import *
from .dropout import *
from .flatten import *
from .fold import *
from .instancenorm import *
from .linear import *
from .loss import *
from .module import Module as Module
from .normalization import *
from .padding import *
from .pixelshuffle import *
from .pooling import *
from .rnn import *
from .sparse import *
from .transformer import *
from .upsampling import *

# Loaded when they are asked for, with the file that each is in.
LATER = {"AdaptiveLogSoftmaxWithLoss": "adaptive", **{
    "Lazy" + name: "lazy" for name in ("Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "BatchNorm1d",
                                       "BatchNorm2d", "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d")}}

if TYPE_CHECKING:
    from .adaptive import *
    from .lazy import *
else:
    __all__ = [name for name, found in globals().items() if isinstance(found, type) and name[0] != "_" and found.__module__.startswith("ampc.")]

    def __getattr__(name: str) -> Any:
        import importlib

        if name in ("utils", *LATER.values()):
            return importlib.import_module(f"{__name__}.{name}")
        if name not in LATER:
            return absent_from("ampc.nn")(name)
        globals()[name] = found = getattr(importlib.import_module(f"{__name__}.{LATER[name]}"), name)
        return found

    def __dir__() -> list:
        return sorted({*globals(), "utils", *LATER, *LATER.values()})
