"""The table's operators as functions (see csrc/ops/ops.def and _ops.pyi)."""

from . import _C

_FUNCTION = 1  # bit of a row's home

__all__ = sorted({row["python"] for row in _C.op_table() if row["home"] & _FUNCTION})
__all__ += [name + "_" for name in __all__ if name + "_" in _C._functions]
globals().update({name: _C._functions[name] for name in __all__})
