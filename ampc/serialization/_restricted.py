"""The unpickler that makes what the allowed names make, and nothing else. Loaded with the first file."""

from __future__ import annotations

import pickle
from typing import Any

from ._safe import by_name

_CONTAINERS = ("set", "frozenset", "complex", "bytearray")
_BUILTIN = {"collections.OrderedDict", "_codecs.encode", "ampc.serialization._safetensors.with_state", "ampc._tensor.device.Size",
            *(f"{m}.{n}" for m in ("builtins", "__builtin__") for n in _CONTAINERS)}


class Restricted(pickle.Unpickler):
    """Unpickles what the allowed names make, and UnpicklingError for another."""

    file = ""

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        named = by_name()
        if full in named:
            return named[full]
        if full in _BUILTIN:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"load: {self.file} asks for {full}, which is not among the safe globals. If you trust it, name it with "
                                     f"serialization.add_safe_globals([{name}])")
