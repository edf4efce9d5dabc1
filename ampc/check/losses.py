"""The rule about losses that are computed in float16, outside the autocast region that has made their input."""

from __future__ import annotations

import ast
import re
from typing import Any, Iterator, Optional, Set

from .order import Found, dtype_of_region
from .reader import Script, name_of, text_of
from .regions import autocast_of, contexts_of, is_on, within
from .scope import Scope, scope_of, without_gradients

LOSSES = {"cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "binary_cross_entropy_with_logits",
          "gaussian_nll_loss", "poisson_nll_loss", "cosine_embedding_loss", "margin_ranking_loss", "triplet_margin_loss",
          "hinge_embedding_loss", "soft_margin_loss"}
MODEL = re.compile(r"\w*(model|net|network|head|encoder|decoder|generator|classifier|backbone)", re.IGNORECASE)
CRITERION = re.compile(r"(\w*_)?(criterion|criteria|loss_fn|loss_func|loss_function)")
WIDE = {"float", "double", "to", "type", "softmax", "log_softmax", "exp", "sum", "Softmax", "LogSoftmax", "no_grad"}  # the result may be float32


def _inside(script: Script) -> Set[int]:
    """The ids of nodes in float16 regions that are open, where gradients are recorded."""
    def begins(node: ast.AST) -> Optional[bool]:
        region = autocast_of(node, script)
        return is_on(region) and dtype_of_region(region, script) == "float16" if isinstance(region, ast.Call) else None

    return within(script, begins) - without_gradients(script)


def _regions(script: Script) -> Set[int]:
    """The ids of nodes in regions of any kind."""
    return within(script, lambda node: True if any("autocast" in text_of(c) for c in contexts_of(node)) else None)


def _is_loss(call: ast.Call, script: Script, scope: Scope) -> bool:
    """A function of torch's, an object of one of its classes, or what a script calls its criterion and does not define."""
    name, made = name_of(call.func), scope.resolve(call.func)
    if isinstance(made, ast.Call):
        return script.full(made.func).startswith("torch.nn.") and name_of(made.func).endswith("Loss")
    if script.full(call.func).startswith("torch."):
        return name in LOSSES
    return bool(CRITERION.fullmatch(name)) and script.function(name) is None


def _is_model(call: ast.Call, script: Script, scope: Scope) -> bool:
    """A module, whose result autocast leaves in float16, as far as its class shows."""
    made = scope.resolve(call.func)
    text = text_of(made)
    if isinstance(made, ast.Call):
        of = next((c for c in ast.walk(script.tree) if isinstance(c, ast.ClassDef) and c.name == name_of(made.func)), None)
        text += "" if of is None else text_of(of)
    elif not MODEL.fullmatch(name_of(call.func)) or script.full(call.func).startswith("torch.") or script.function(name_of(call.func)):
        return False
    return not any(word in WIDE for word in re.findall(r"\w+", text))


def _input(call: ast.Call) -> Optional[Any]:
    return call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "input"), None)


def check(script: Script) -> Iterator[Found]:
    """Losses outside of regions, of what a module has returned within one."""
    inside = _inside(script)
    if not inside or not any(e.kind in ("backward", "scaled_backward") for e in script.events):
        return
    regions, unrecorded = _regions(script), without_gradients(script)
    for call in script.calls:
        given = _input(call)
        if id(call) in regions or id(call) in unrecorded or not isinstance(given, ast.Name):
            continue
        scope = scope_of(script, script.around.get(id(call)) or script.tree)
        made = scope.resolve(given)
        if isinstance(made, ast.Call) and id(made) in inside and _is_loss(call, script, scope) and _is_model(made, script, scope):
            yield ("loss-outside-region", call.lineno, f"{text_of(call.func)} gets {given.id}, which an autocast region has made float16, outside "
                   "that region, and so computes in float16: a loss above 65504 is inf, and small ones are rounded",
                   f"compute the loss within the region, where it is computed in float32; or give it {given.id}.float()")
