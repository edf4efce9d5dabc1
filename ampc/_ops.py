"""The functions of the table's rows (see csrc/ops/ops.def and _ops.pyi), and torch's other names for them: the one place where they are looked
up by name. Those that torch shows at its top are listed; the others are here for the modules that show them, or write functions with them."""

from typing import TYPE_CHECKING

from . import _C
from ._names.missing import absent_from

_FUNCTION = 1  # bit of an operator's home

# Another name: the row that it is, a function, method and in-place method as far as the row is one.
ALIASES = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2",
    "arctanh": "atanh", "clip": "clamp", "concat": "cat", "concatenate": "cat", "divide": "div", "fix": "trunc", "ger": "outer", "greater": "gt",
    "greater_equal": "ge", "less": "lt", "less_equal": "le", "moveaxis": "movedim", "multiply": "mul", "negative": "neg", "not_equal": "ne",
    "row_stack": "vstack", "sgn": "sign", "subtract": "sub", "swapdims": "transpose", "trapz": "trapezoid", "true_divide": "div",
}

globals().update(_C._functions)
for _alias, _row in ALIASES.items():
    for _end in ("", "_"):
        if _row + _end in _C._functions:
            globals()[_alias + _end] = _C._functions[_row + _end]

_TABLE = _C.op_table()
SHOWN = {op["name"]: op["shown"] for op in _TABLE}  # what reports call the rows: of private ones, the public function that they compute

__all__ = sorted({op["python"] for op in _TABLE if op["home"] & _FUNCTION})
__all__ += [name + "_" for name in __all__ if name + "_" in _C._functions]
__all__ += [alias + end for alias, row in ALIASES.items() for end in ("", "_") if row + end in _C._functions]

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
