"""Rules about what reaches an optimizer's update: gradients that are cleared, clipped or divided at the wrong place, and losses scaled twice."""

from __future__ import annotations

import ast
import re
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple

from .order import Found
from .reader import Event, Script, name_of, text_of
from .scope import Scope, scope_of, speaks_of

RULES: List[Callable[[Script], Iterator[Found]]] = []
BACKWARDS = ("backward", "scaled_backward")
STEPS = ("step", "scaler_step")
SAME = {"item", "float", "detach", "mean", "sum", "to", "cpu", "clone", "view", "reshape"}  # of a scaled value it is scaled, too
LAYERS = re.compile(r"Linear|Bilinear|Conv(Transpose)?[123]d|Embedding(Bag)?|(Layer|Batch|Group|RMS)Norm.*|LSTM|GRU|RNN|MultiheadAttention|Parameter")
MEANS = {"cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
         "binary_cross_entropy_with_logits"}


def _rule(f: Callable[[Script], Iterator[Found]]) -> Callable[[Script], Iterator[Found]]:
    RULES.append(f)
    return f


def _optimizer(e: Event, script: Script) -> str:
    """The optimizer of a call, by its name where the events are followed to; a helper's own has a name of its own."""
    node = e.node.args[0] if e.kind in ("scaler_step", "unscale") and e.node.args else None
    text = e.who if node is None else text_of(node)
    named, root = dict(e.names), text.split(".")[0]
    if not e.via or root in named:
        return named.get(root, root) + text[len(root):]
    return f"{text} of line {e.scope.lineno}" if root in scope_of(script, e.scope).values else text


def _same_place(a: Event, b: Event) -> bool:
    return a.loops == b.loops and a.branches == b.branches


def _always_before(a: Event, b: Event) -> bool:
    """Whether the first runs in every iteration in which the second does."""
    return a.loops == b.loops and set(a.branches) <= set(b.branches)


@_rule
def clipping_late(script: Script) -> Iterator[Found]:
    for scope in script.scopes():
        events = script.followed(scope)
        for i, e in enumerate(events):
            if e.kind != "clip" or "inf" in " ".join(text_of(a) for a in (*e.node.args[1:], *(k.value for k in e.node.keywords))):
                continue
            before = _since_backward(events[:i])
            after = _until_backward(events[i + 1:])
            used = any(o.kind in STEPS for o in after) or any(o.kind == "rescale" for o in before or ())
            if before is not None and not used and any(o.kind in STEPS and _same_place(o, e) for o in before):
                yield ("clip-after-step", e.line, f"{name_of(e.node.func)} comes after the step that uses the gradients, so it limits nothing",
                       "call it before the step, after scaler.unscale_(optimizer)")


def _since_backward(events: List[Event]) -> Optional[List[Event]]:
    """The events after the last backward pass; None where there is none."""
    at = max((i for i, e in enumerate(events) if e.kind in BACKWARDS), default=None)
    return None if at is None else events[at + 1:]


def _until_backward(events: List[Event]) -> List[Event]:
    return events[:next((i for i, e in enumerate(events) if e.kind in BACKWARDS), len(events))]


@_rule
def stepping_twice(script: Script) -> Iterator[Found]:
    for scope in script.scopes():
        events = script.followed(scope)
        for i, e in enumerate(events):
            if e.kind != "step" or e.node.args:
                continue
            near = (_since_backward(events[:i]) or []) + _until_backward(events[i + 1:])
            if any(o.kind == "scaler_step" and _same_place(o, e) and _optimizer(o, script) == _optimizer(e, script) for o in near):
                yield ("step-twice", e.line, f"scaler.step({e.who}) and {e.who}.step() both update the parameters by the same gradients",
                       f"leave {e.who}.step() out: scaler.step() calls it, unless gradients are not finite")


@_rule
def unscaling_twice(script: Script) -> Iterator[Found]:
    if not any(e.kind == "update" for e in script.events):
        return
    for scope in script.scopes():
        since: List[Event] = []
        for e in script.followed(scope):
            if e.kind in ("update", "new_scaler"):
                since = []
            elif e.kind == "unscale":
                of = _optimizer(e, script)
                if any(_always_before(o, e) and _optimizer(o, script) == of for o in since):
                    yield ("unscale-twice", e.line, "scaler.unscale_() is called for an optimizer for which it, or scaler.step(), was called since "
                           "the last update(): that fails", "call unscale_() once, after the last backward() and before the step")
            if e.kind in ("unscale", "scaler_step"):
                since.append(e)


@_rule
def clearing_early(script: Script) -> Iterator[Found]:
    for scope in script.scopes():
        events = script.followed(scope)
        for i, e in enumerate(events):
            before = _since_backward(events[:i]) if e.kind == "zero" else None
            if before is None or any(o.kind in STEPS for o in before):
                continue
            step = next((o for o in _until_backward(events[i + 1:]) if o.kind in STEPS), None)
            if step is None or step.via != e.via or not _always_before(e, step) or len(step.node.args) > (step.kind == "scaler_step"):
                continue
            if _optimizer(step, script) == _optimizer(e, script) and not _computes_between(e, step, script):
                yield ("no-gradients", e.line, f"{e.who}.zero_grad() stands between backward() and the step, which then finds no gradients",
                       "call zero_grad() before backward(), or after the step")


def _computes_between(a: Event, b: Event, script: Script) -> bool:
    """Whether a call between two others, of a function that is not in the file, may compute gradients."""
    known = {id(e.node) for e in script.events}
    return any(a.line < c.lineno < b.line and id(c) not in known and re.search("backward|grad|loss", text_of(c)) for c in script.calls) or any(
        e.kind == "rescale" and a.line < e.line < b.line for e in script.events)


# -- losses ------------------------------------------------------------------------------------------------------


def _scaled_by(node: Any, scope: Scope, around: Any, depth: int = 8) -> Optional[ast.AST]:
    """The scaler.scale() that a value came from; None where it did not, or not surely, or was divided by the scale."""
    script, node = scope.script, scope.resolve(node)
    if depth == 0:
        return None
    if isinstance(node, ast.BinOp):
        sides = [_scaled_by(side, scope, around, depth - 1) for side in (node.left, node.right)]
        other = node.right if sides[0] is not None else node.left
        divided = isinstance(node.op, (ast.Div, ast.Mult)) and speaks_of(other, "scale", scope)
        return None if divided else sides[0] or sides[1]
    if not isinstance(node, ast.Call):
        return None
    if _is_scale(node, script):
        return node
    body: Any = script.called(node, around)
    if body is not None:
        returned = [_scaled_by(r.value, scope_of(script, body), body, depth - 1) for r in ast.walk(body)
                    if isinstance(r, ast.Return) and script.around.get(id(r)) is body and r.value is not None]
        return node if returned and None not in returned else None
    first = scope.call(node, *SAME)
    if isinstance(node.func, ast.Name) and node.func.id == "float" and node.args:
        first = node.args[0]
    return _scaled_by(first, scope, around, depth - 1) if first is not None else None


def _is_scale(node: ast.AST, script: Script) -> bool:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "scale"
    return called and script.is_a("scaler", node.func.value)  # type: ignore[attr-defined]


def _surely(of: Optional[ast.AST], at: Event, script: Script) -> bool:
    """Whether a value was scaled whenever the call is reached."""
    event = next((e for e in script.events if e.node is of), None)
    return of is not None and (event is None or event.scope is not at.scope or set(event.branches) <= set(at.branches))


@_rule
def scaling_twice(script: Script) -> Iterator[Found]:
    for e in (e for e in script.events if e.kind == "scale" and e.node.args):
        if _surely(_scaled_by(e.node.args[0], scope_of(script, e.scope), e.scope), e, script):
            yield ("scaled-twice", e.line, "scaler.scale() is given a loss that is multiplied by the scale already; the gradients are divided by one "
                   "factor only", "scale it once")


@_rule
def metrics(script: Script) -> Iterator[Found]:
    for e in (e for e in script.events if e.kind == "schedule"):
        given = [*e.node.args[:1], *(k.value for k in e.node.keywords if k.arg == "metrics")]
        if given and _surely(_scaled_by(given[0], scope_of(script, e.scope), e.scope), e, script):
            yield ("metric-is-scaled", e.line, f"{e.who}.step() is given the scaled loss, which jumps whenever the scale changes",
                   "give it the unscaled loss")


# -- several micro-batches ---------------------------------------------------------------------------------------


class _Accumulation(NamedTuple):
    """A step of every so many micro-batches, with the backward passes that lead to it."""

    step: Event
    branch: Tuple[int, str]
    backwards: List[Event]
    events: List[Event]


def _accumulations(script: Script) -> Iterator[_Accumulation]:
    if not any(e.kind in STEPS and e.loops and e.branches for e in script.events):
        return
    ifs = {n.lineno: n.test for n in ast.walk(script.tree) if isinstance(n, ast.If)}
    for events in script.scopes().values():
        for step in (e for e in events if e.kind in STEPS and e.loops):
            branch = next((b for b in step.branches if b[1] == "if" and b[0] > step.loops[-1] and b[0] in ifs and _is_every_nth(ifs[b[0]])), None)
            of = _optimizer(step, script)
            others = any(e.kind in STEPS and e.loops == step.loops and branch not in e.branches and _optimizer(e, script) == of for e in events)
            backwards = [e for e in events if e.kind in BACKWARDS and e.line < step.line and _always_before(e, step) and branch not in e.branches]
            if branch is not None and backwards and not others:
                yield _Accumulation(step, branch, backwards, events)


def _is_every_nth(test: ast.expr) -> bool:
    """(i + 1) % n == 0, not i % n, or one of these with something else."""
    if isinstance(test, ast.BoolOp):
        return any(_is_every_nth(v) for v in test.values)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _is_modulo(test.operand)
    return isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq) and _is_modulo(test.left)


def _is_modulo(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and not (isinstance(node.right, ast.Constant) and node.right.value == 1)


@_rule
def losing(script: Script) -> Iterator[Found]:
    for a in _accumulations(script):
        of, made = _optimizer(a.step, script), _made(_optimizer(a.step, script), a.step, script)
        for e in a.events:
            cleared = e.who == of or made is not None and f"{e.who}.parameters()" in text_of(made)
            if e.kind == "zero" and cleared and a.branch not in e.branches and any(_always_before(e, b) for b in a.backwards):
                yield ("accumulation-lost", e.line, "zero_grad() is called for every micro-batch, so a step uses the gradients of the last one alone",
                       "call zero_grad() in the branch of the step, after it")


def _made(name: str, at: Event, script: Script) -> Optional[ast.Call]:
    """The call that makes an optimizer."""
    for body in (at.scope, script.tree):
        scope = scope_of(script, body)
        value = next((v for _, v in reversed(scope.values.get(name, []))), scope.shared.get(name))
        if isinstance(value, ast.Call):
            return value
    return None


@_rule
def dividing(script: Script) -> Iterator[Found]:
    for a in _accumulations(script):
        made, scope = _made(_optimizer(a.step, script), a.step, script), scope_of(script, a.step.scope)
        edits = any(e.kind in ("clip", "rescale") for e in a.events if e.loops[:len(a.step.loops)] == a.step.loops)
        if made is None or name_of(made.func) != "SGD" or edits or len(a.backwards) > 1:  # Adam's step does not depend on the factor
            continue
        rate = next((k.value for k in made.keywords if k.arg == "lr"), made.args[1] if len(made.args) > 1 else None)
        loss = _loss(a.backwards[0], scope)
        if loss is not None and _is_mean(loss, scope) and not isinstance(scope.resolve(rate), ast.BinOp):
            yield ("loss-not-divided", scope.resolve(loss).lineno, "the gradients of several micro-batches are added, and their losses are means "
                   "that are not divided by their number: a step is that many times too large", "divide the loss by the number of micro-batches")


def _loss(e: Event, scope: Scope) -> Optional[ast.expr]:
    of = scope.resolve(getattr(e.node.func, "value", None))
    return of.args[0] if _is_scale(of, scope.script) and of.args else of if e.kind == "backward" else None


def _is_mean(node: Any, scope: Scope) -> bool:
    """Whether a loss is a mean over the batch, and surely not divided by anything."""
    node = scope.resolve(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_mean(node.left, scope) and _is_mean(node.right, scope)
    if not isinstance(node, ast.Call):
        return False
    made = scope.resolve(node.func)
    if isinstance(made, ast.Call):  # criterion = nn.CrossEntropyLoss()
        full = scope.script.full(made.func)
        return full.startswith("torch.nn.") and full.endswith("Loss") and _has_no_reduction(made)
    if name_of(node.func) in MEANS and scope.script.full(node.func).startswith("torch."):
        return _has_no_reduction(node) and not any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div) for n in ast.walk(node))
    return False


def _has_no_reduction(call: ast.Call) -> bool:
    return not any(k.arg in ("reduction", "size_average", "weight", None) for k in call.keywords)


# -- parameters --------------------------------------------------------------------------------------------------


@_rule
def parameters(script: Script) -> Iterator[Found]:
    if "add_param_group" in script.source or "requires_grad" in script.source:
        return
    for body in (script.tree, *script.functions):
        for i, s in enumerate(body.body):
            kind = script.kind_of(s.value) if isinstance(s, ast.Assign) and len(s.targets) == 1 else ""
            if kind != "optimizer" or not isinstance(s, ast.Assign):
                continue
            of = [text_of(c.func.value) for c in ast.walk(s.value) if isinstance(c, ast.Call) and isinstance(c.func, ast.Attribute)
                  and c.func.attr == "parameters"]
            replaced = next((o for o in body.body[i + 1:] if any(_replaces(o, model, script) for model in of)), None)
            if replaced is not None and _trains_on(s, of, replaced, body, script):
                yield ("wrong-parameters", s.lineno, f"the optimizer is made before line {replaced.lineno} replaces a part of {of[0]}: the new "
                       "parameters are never updated", "make the optimizer after that line")


def _replaces(s: ast.stmt, model: str, script: Script) -> bool:
    """model.head = nn.Linear(3, 4), model[2] = ..., or a new model in place of it."""
    if not isinstance(s, ast.Assign) or not isinstance(s.value, ast.Call):
        return False
    targets = [text_of(t) for t in s.targets]
    if not any(t == model or t.startswith((model + ".", model + "[")) for t in targets):
        return False
    names = [n.id for n in ast.walk(s.value) if isinstance(n, ast.Name)]
    made = [name_of(c.func) for c in ast.walk(s.value) if isinstance(c, ast.Call) and script.full(c.func).startswith("torch.nn.")]
    return model.split(".")[0] not in names and (any(LAYERS.fullmatch(m) for m in made) or name_of(s.value.func) in script.classes)


def _trains_on(made: ast.Assign, models: List[str], replaced: ast.stmt, body: Any, script: Script) -> bool:
    """Whether that optimizer steps after the line, and no other has the parameters of these models."""
    name = text_of(made.targets[0])
    within = script.class_of.get(body, body) if name.startswith("self.") else body
    later = [n for n in ast.walk(within) if isinstance(n, (ast.Call, ast.Assign)) and n.lineno > made.lineno]
    others = [text_of(c) for c in later if isinstance(c, ast.Call) and script.kind_of(c) == "optimizer"]
    again = any(model.split(".")[0] in text for text in others for model in models) or any(
        isinstance(n, ast.Assign) and name in [text_of(t) for t in n.targets] for n in later)
    events = script.followed(body) if within is body else [e for e in script.events if script.class_of.get(e.scope) is within]
    steps = [e for e in events if e.kind in STEPS and _optimizer(e, script) == name]
    return not again and any((e.via[0] if e.via else e.line) > replaced.lineno or e.scope is not body and not e.via for e in steps)


