"""The table's operators as functions (see csrc/ops/ops.def and _ops.pyi)."""

from . import _C

_FUNCTION = 1  # bit of an operator's home

__all__ = sorted({op["python"] for op in _C.op_table() if op["home"] & _FUNCTION})
__all__ += [name + "_" for name in __all__ if name + "_" in _C._functions]
globals().update({name: _C._functions[name] for name in __all__})
