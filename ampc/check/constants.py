"""The rule about numbers that are another number in 16 bits: a decay of 0.9999 that is 1, a rate of 1e-8 that is 0."""

from __future__ import annotations

import ast
from typing import Any, Iterator, Optional, Tuple

from .order import Found
from .reader import Script, name_of
from .scope import Scope, scope_of

MAKERS = {"tensor", "as_tensor", "scalar_tensor", "full", "full_like", "new_tensor", "new_full"}
CASTS = {"half": "float16", "bfloat16": "bfloat16", "to": "", "type": ""}
DIGITS = {"float16": 11, "half": 11, "bfloat16": 8}
LEAST = 2.0**-25  # of float16: what is not larger is 0


def _number(node: Any, scope: Scope) -> Optional[float]:
    """A number that is written in the script; None for anything else, a whole number too."""
    node = scope.resolve(node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _number(node.operand, scope)
        return None if value is None else -value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):  # 1 - 1e-4
        sides = [s.value if isinstance(s, ast.Constant) and isinstance(s.value, (int, float)) else None for s in (node.left, node.right)]
        return float(sides[0] - sides[1]) if None not in sides else None  # type: ignore[operator]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, float) else None


def _made(node: Any, scope: Scope) -> Optional[float]:
    """The number of torch.tensor(0.9999) or torch.full((3,), 0.9999)."""
    node = scope.resolve(node)
    if not isinstance(node, ast.Call) or name_of(node.func) not in MAKERS:
        return None
    if not scope.script.full(node.func).startswith("torch.") and not name_of(node.func).startswith("new_"):
        return None
    at = 1 if "full" in name_of(node.func) else 0
    given = [*node.args[at:at + 1], *(k.value for k in node.keywords if k.arg in ("data", "fill_value"))]
    return _number(given[0], scope) if given else None


def _half(node: Any, scope: Scope) -> str:
    """float16 or bfloat16, where an expression says one of them."""
    name = name_of(scope.resolve(node))
    return {"half": "float16"}.get(name, name) if name in DIGITS else ""


def _cast(call: ast.Call, scope: Scope) -> Tuple[str, Optional[float]]:
    """The dtype that a call gives a number, and the number: torch.tensor(x, dtype=torch.float16), torch.tensor(x).half()."""
    said = [k.value for k in call.keywords if k.arg == "dtype"]
    if name_of(call.func) in MAKERS and said:
        return _half(said[0], scope), _made(call, scope)
    if name_of(call.func) in CASTS and isinstance(call.func, ast.Attribute):
        kinds = [_half(a, scope) for a in (*call.args, *said)] if not CASTS[call.func.attr] else [CASTS[call.func.attr]]
        return next((k for k in kinds if k), ""), _made(call.func.value, scope)
    return "", None


def check(script: Script) -> Iterator[Found]:
    """Numbers of 16 bits that are 1 or 0 there, though they are written as others."""
    for call in script.calls:
        if name_of(call.func) not in MAKERS | set(CASTS):
            continue
        dtype, value = _cast(call, scope_of(script, script.around.get(id(call), script.tree)))
        becomes = _becomes(value, dtype) if dtype and value is not None else None
        if becomes is not None:
            vanishes = "one minus it is 0" if becomes else "what it multiplies, or is added to, does not notice it"
            yield ("rate-too-coarse", call.lineno, f"{value:g} is {becomes:g} in {dtype}, so that {vanishes}",
                   "keep it as a Python number, or in float32")


def _becomes(value: float, dtype: str) -> Optional[float]:
    """1 or 0, where a number is rounded to it."""
    if 0.5 < value < 1 and 1 - value <= 2.0 ** -(DIGITS[dtype] + 1):
        return 1.0
    return 0.0 if dtype == "float16" and 0 < abs(value) <= LEAST else None
