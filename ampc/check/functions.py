"""The rule about autograd Functions that autocast changes."""

from __future__ import annotations

import ast
from typing import Any, Iterator, List, Optional, Set, Tuple

from .order import Found, regions_dtypes
from .reader import Script, name_of, text_of
from .regions import autocast_of, is_on, within
from .scope import Scope

PRODUCTS = {"matmul", "mm", "bmm", "mv", "linear", "bilinear", "einsum", "addmm", "addmv", "addbmm", "baddbmm", "conv1d", "conv2d", "conv3d",
            "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "scaled_dot_product_attention"}
CASTS = {"to", "float", "half", "double", "bfloat16", "type", "type_as"}


class _Uses:
    """Which calls of a script run under autocast."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.on = within(script, self._turns_on)
        self.off = within(script, lambda node: None if self._turns_on(node) is None else not self._turns_on(node))
        self.around = script.around

    def _turns_on(self, node: ast.AST) -> Optional[bool]:
        return is_on(autocast_of(node, self.script))

    def under_autocast(self, node: ast.AST, seen: Tuple[Any, ...] = ()) -> bool:
        """In a region, or in a function that is called in one. What calls a method such as forward is not in the file: it may be in one."""
        if id(node) in self.on or id(node) in self.off:
            return id(node) in self.on
        f = self.around.get(id(node))
        if f is None or f in seen:
            return False
        calls = [c for c in self.script.calls if name_of(c.func) == f.name and self.around.get(id(c)) is not f]
        return any(self.under_autocast(c, (*seen, f)) for c in calls) if calls else bool(regions_dtypes(self.script))

    def of(self, name: str) -> List[ast.Call]:
        """The calls of Name.apply, by other names that it was given, too."""
        names = {f"{name}.apply"}
        for node in ast.walk(self.script.tree):
            if isinstance(node, ast.Assign) and text_of(node.value) == f"{name}.apply":
                names |= {text_of(t) for t in node.targets}
        return [c for c in self.script.calls if text_of(c.func) in names]


def _multiplies(body: Any, script: Script, off: Set[int]) -> bool:
    """Whether autocast would choose the dtype of a product in the function: one whose operands it does not cast by itself."""
    scope = Scope(body, script)
    for node in ast.walk(body):
        operands: List[Optional[ast.expr]] = []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            operands = [node.left, node.right]
        elif isinstance(node, ast.Call) and name_of(node.func) in PRODUCTS:
            operands = [*node.args, getattr(node.func, "value", None)]
        cast = any(isinstance(n, ast.Call) and name_of(n.func) in CASTS for o in operands if o is not None for n in ast.walk(scope.resolve(o)))
        if operands and not cast and id(node) not in off:
            return True
    return False


def check(script: Script) -> Iterator[Found]:
    """Functions without the decorators, where they multiply and are used under autocast."""
    uses: Optional[_Uses] = None
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.ClassDef) or not any(script.full(b) == "torch.autograd.Function" for b in node.bases):
            continue
        methods = {m.name: m for m in node.body if isinstance(m, ast.FunctionDef)}
        forward, backward = methods.get("forward"), methods.get("backward")
        if forward is None or backward is None:
            continue
        said = " ".join(text_of(d) for d in forward.decorator_list)
        missing = [word for word, m in (("custom_fwd", forward), ("custom_bwd", backward)) if not any(word in text_of(d) for d in m.decorator_list)]
        uses = uses or _Uses(script)
        if not missing or "cast_inputs" in said or not any(_multiplies(m, script, uses.off) for m in (forward, backward)):
            continue
        if any(uses.under_autocast(c) for c in uses.of(node.name)):
            yield ("function-without-custom-fwd", node.lineno, f"{node.name} multiplies under autocast without "
                   f"{' and '.join(missing)}: its forward runs in 16 bits and its backward outside the region, where 16-bit gradients "
                   "meet float32 tensors",
                   "decorate forward with torch.amp.custom_fwd(device_type=...) and backward with torch.amp.custom_bwd(device_type=...)")
