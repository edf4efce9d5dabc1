"""Rules about the order of calls: what a script does to gradients that a scaler has multiplied."""

from __future__ import annotations

import ast
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from ..doctor.rules import BCE_FIX
from .reader import Event, Script, is_off, name_of, text_of
from .scope import scope_of, speaks_of, without_gradients

Found = Tuple[str, int, str, str]  # rule, line, what, fix
RULES: List[Callable[[Script], Iterator[Found]]] = []


def _rule(f: Callable[[Script], Iterator[Found]]) -> Callable[[Script], Iterator[Found]]:
    RULES.append(f)
    return f


def _uses(script: Script, kind: str) -> List[Event]:
    return [e for e in script.events if e.kind == kind]


@_rule
def clipping(script: Script) -> Iterator[Found]:
    found: Dict[int, Event] = {}  # line of the clipping -> the call that leads there
    for scope in script.scopes():
        scaled = None
        for e in script.followed(scope):
            if e.kind == "scaled_backward":
                scaled = e
            elif e.kind in ("unscale", "scaler_step") or divides_by_scale(e, script):
                scaled = None
            elif e.kind == "clip" and scaled is not None and not (in_another_arm(e, scaled) or _limit_is_scaled(e, script)):
                found[e.line] = found.get(e.line, e) if e.via else e
    for line, e in found.items():
        where = f", called from line {e.via[-1]}," if e.via else ""
        yield ("clip-scaled-gradients", line, f"{name_of(e.node.func)}{where} comes after scaler.scale(...).backward() without scaler.unscale_() "
               "between, so it clips gradients that are multiplied by the scale", "call scaler.unscale_(optimizer) before it")


def divides_by_scale(e: Event, script: Script) -> bool:
    """Whether the call or assignment divides gradients by a scale by hand: p.grad.div_(scaler.get_scale())."""
    if e.kind != "rescale":
        return False
    call = isinstance(e.node, ast.Call)
    if call and "unscale" in name_of(e.node.func):
        return True
    changed, factors = (e.node.func, e.node.args[-1:]) if call else (e.node, [e.node.value])
    of_gradients = any("grad" in name_of(n) for n in ast.walk(changed))
    scope = scope_of(script, e.scope)
    return any(speaks_of(f, "scale", scope) or of_gradients and isinstance(f, ast.Constant) for f in factors)


def _limit_is_scaled(e: Event, script: Script) -> bool:
    """Whether what limits the gradients is multiplied by the scale, too: limit * scaler.get_scale()."""
    scope = scope_of(script, e.scope)
    for limit in (*e.node.args[1:2], *(k.value for k in e.node.keywords if k.arg in ("max_norm", "clip_value"))):
        limit = scope.resolve(limit)
        parts = [limit]
        if isinstance(limit, ast.BinOp):
            parts = [limit.left, limit.right] if isinstance(limit.op, ast.Mult) else [limit.left]
        if any(speaks_of(p, "scale", scope) for p in parts):
            return True
    return False


@_rule
def stepping(script: Script) -> Iterator[Found]:
    for scope in script.scopes():
        events = script.followed(scope)
        divides = [e for e in events if e.kind in ("unscale", "scaler_step")]
        divided = {text_of(e.node.args[0]) for e in divides if e.node.args}
        for i, e in enumerate(events):
            if e.kind != "step" or e.who in divided or any(d.via or e.via for d in divides):
                continue
            scaled = _still_scaled(events[:i], e, bool(divided), script)
            if scaled and not _has_its_own_way(e, scaled, script):
                yield ("step-on-scaled-gradients", e.line, f"{e.who}.step() uses gradients that are still multiplied by the loss scale",
                       f"call scaler.step({e.who}), then scaler.update()")


def _still_scaled(before: List[Event], step: Event, of_others: bool, script: Script) -> List[Event]:
    """The scaled backward passes whose gradients the step may use. zero_grad() and a division by hand end that. ``of_others``: a scaler
    steps other optimizers, so that a backward pass that is not scaled computes the gradients of this one."""
    scaled: List[Event] = []
    for e in before:
        if e.kind == "scaled_backward":
            scaled.append(e)
        elif e.kind == "zero" and clears(e, step, script) or e.kind == "backward" and of_others or divides_by_scale(e, script):
            scaled = []
    return scaled


def clears(zero: Event, step: Event, script: Script) -> bool:
    """Whether zero_grad() is called whenever the step is, and is of that optimizer, or of a model."""
    return set(zero.branches) <= set(step.branches) and (zero.who == step.who or not script.is_a("optimizer", zero.node.func.value))


def in_another_arm(e: Event, of: Event) -> bool:
    """Whether two events are in different arms of an `if`."""
    arms = dict(e.branches)
    return any(arms.get(line, arm) != arm for line, arm in of.branches)


def _has_its_own_way(step: Event, scaled: List[Event], script: Script) -> bool:
    """Whether the step never follows a scaled backward: it is in the other arm of an `if`, or in its own `if amp:`."""
    shared = {branch for s in scaled for branch in s.branches}
    elsewhere = all(in_another_arm(step, s) for s in scaled)
    own = [line for line, arm in step.branches if (line, arm) not in shared]
    return elsewhere or any("amp" in test or "scaler" in test for test in _tests(script.tree, own))


def _tests(scope: Any, lines: Iterable[int]) -> List[str]:
    """What the ifs in these lines ask."""
    return [text_of(n.test) for n in ast.walk(scope) if isinstance(n, ast.If) and n.lineno in lines]


@_rule
def accumulation(script: Script) -> Iterator[Found]:
    for events in script.scopes().values():
        for step in (e for e in events if e.kind == "scaler_step" and e.branches and e.loops):
            if not any("%" in t for t in _tests(step.scope, dict(step.branches))) or _is_besides(step, events):
                continue
            for e in events:
                outside = e.loops == step.loops and len(e.branches) < len(step.branches)
                if e.kind == "unscale" and outside:
                    yield ("unscale-before-accumulation", e.line, "scaler.unscale_() is called for every micro-batch, but a step uses the "
                           "gradients of several", "move it into the branch of scaler.step()")
                elif e.kind == "update" and outside:
                    yield ("mixed-scales", e.line, "scaler.update() is called for every micro-batch and may change the scale between "
                           "gradients that are added up", "move it into the branch of scaler.step()")


def _is_besides(step: Event, events: List[Event]) -> bool:
    """Whether every iteration has a step of its own, so that this one is not the only use of several gradients."""
    return any(e.kind == "scaler_step" and e.loops == step.loops and set(e.branches) < set(step.branches) for e in events)


@_rule
def updating(script: Script) -> Iterator[Found]:
    steps, updates = _uses(script, "scaler_step"), _uses(script, "update")
    if steps and not updates:
        yield ("update-missing", steps[-1].line, "scaler.step() is called and scaler.update() is not: the scale never changes, and the "
               "second step fails", "call scaler.update() after it")
    for events in script.scopes().values():
        line = [e for e in events if e.kind in ("scaler_step", "update", "scaled_backward")]
        for a, b, c in zip(line, line[1:], line[2:]):
            same = a.loops == b.loops == c.loops and a.branches == b.branches == c.branches
            if same and [a.kind, b.kind, c.kind] == ["scaler_step", "update", "scaler_step"]:
                yield ("update-between-steps", b.line, "scaler.update() between two optimizers' steps changes the scale that the second one "
                       "divides by", "call it once, after the last step")


@_rule
def making(script: Script) -> Iterator[Found]:
    for e in _uses(script, "new_scaler"):
        training = [o for o in script.events if o.loops[:len(e.loops)] == e.loops and o.scope is e.scope
                    and o.kind in ("scaled_backward", "scaler_step", "backward")]
        at_times = any(line > e.loops[-1] or line < 0 for line, _ in e.branches) if e.loops else False
        again = bool(e.loops) and not _starts_anew(e, training, script) if training and not at_times else False
        if again or not e.loops and _is_of_a_step(e, script):
            yield ("scaler-in-loop", e.line, "a new GradScaler is made in every iteration: it starts at the initial scale each time "
                   "and never adapts", "make it once, before the loop")


def _is_of_a_step(e: Event, script: Script) -> bool:
    """Whether a function that is called in a loop makes the scaler, for a step of an optimizer that it does not make."""
    if e.scope is script.tree or e.branches or any(script.kind_of(c) == "optimizer" for c in script.calls if script.around.get(id(c)) is e.scope):
        return False
    once = {o.kind for o in script.events if o.scope is e.scope and not o.loops}
    called = any(o.kind == "call" and o.loops and script.called(o.node, o.scope) is e.scope for o in script.events)
    return called and {"scaled_backward", "scaler_step"} <= once


def _starts_anew(e: Event, training: List[Event], script: Script) -> bool:
    """Whether every iteration is a training of its own: of a new optimizer, with a loop of its own or with a new model."""
    loop = _loop_around(e, script.tree)
    made = {text_of(t): s.value for s in loop.body if isinstance(s, ast.Assign) for target in s.targets
            for t in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target])}
    optimizers = [value for name, value in made.items() if script.is_a("optimizer", ast.parse(name, mode="eval").body)]
    of_new = any(text_of(n) in made for value in optimizers for n in ast.walk(value))
    return bool(optimizers) and (of_new or all(len(o.loops) > len(e.loops) for o in training if o.kind != "scaler_step"))


def _loop_around(e: Event, scope: Any) -> Any:
    """The innermost loop."""
    return next(n for n in ast.walk(scope) if isinstance(n, (ast.For, ast.AsyncFor, ast.While)) and n.lineno == e.loops[-1])


@_rule
def scheduling(script: Script) -> Iterator[Found]:
    for events in script.scopes().values():
        steps = [o for o in events if o.kind in ("step", "scaler_step")]
        for e in (e for e in events if e.kind == "schedule" and e.loops):
            same = [o for o in steps if o.loops[:len(e.loops)] == e.loops]
            asked = e.node.args or e.node.keywords or _leaves_iterations_out(e, same)  # step(epoch), step(metric)
            if same and not asked and all(o.line > e.line for o in steps):
                yield ("scheduler-before-optimizer", e.line, f"{e.who}.step() comes before the optimizer's step, so the first learning rate is "
                       "never used", "call it after the optimizer's step")


def _leaves_iterations_out(e: Event, others: List[Event]) -> bool:
    """Whether an `if` around the call, and not around the others, asks for something that changes from iteration to iteration."""
    shared = {branch for o in others for branch in o.branches}
    lines = [line for line, name in e.branches if (line, name) not in shared]
    loop = _loop_around(e, e.scope)
    changes = {n.id for n in ast.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    tests = [n.test for n in ast.walk(loop) if isinstance(n, ast.If) and n.lineno in lines]
    return any(isinstance(n, ast.Name) and n.id in changes for t in tests for n in ast.walk(t))


@_rule
def closures(script: Script) -> Iterator[Found]:
    for e in _uses(script, "scaler_step"):
        given = [*e.node.args[1:2], *(k.value for k in e.node.keywords if k.arg == "closure")]
        body = script.function(given[0].id) if given and isinstance(given[0], ast.Name) else None
        if body is not None and not any(o.kind == "scaled_backward" and o.scope is body for o in script.events):
            yield ("closure-without-scale", e.line, f"the closure {text_of(given[0])} calls backward() without scaler.scale(), but "
                   "scaler.step() divides its gradients", "write scaler.scale(loss).backward() in the closure; torch's scaler takes no closure")


@_rule
def regions(script: Script) -> Iterator[Found]:
    for e in script.events:
        body = script.called(e.node, e.scope) if e.kind == "call" and e.autocast else None
        inside = [e] if body is None else script.followed(body)
        if e.autocast and any(o.kind in ("backward", "scaled_backward") for o in inside):
            yield ("backward-under-autocast", e.line, "backward() is called inside an autocast region", "end the region after the loss")


@_rule
def probabilities(script: Script) -> Iterator[Found]:
    for e in script.events:
        body = script.called(e.node, e.scope) if e.kind == "call" and e.autocast == "?" else None
        inside = [e] if body is None else [o for o in script.followed(body) if not _switches_off(o.scope)]
        for o in inside:
            if o.kind == "bce" and (o.autocast if o.autocast else e.autocast) == "?":
                yield ("bce-under-autocast", o.line, f"{text_of(o.node.func)} is called inside an autocast region, an error on a GPU: 16-bit "
                       "probabilities reach 0 and 1, where its gradient is infinite", BCE_FIX)


def _switches_off(scope: Any) -> bool:
    """Whether a function has a region without autocast."""
    return any(isinstance(n, ast.Call) and name_of(n.func) == "autocast" and is_off(n) for n in ast.walk(scope))


@_rule
def precision(script: Script) -> Iterator[Found]:
    scalers, low, recorded = _uses(script, "new_scaler"), regions_dtypes(script), regions_dtypes(script, without_gradients(script))
    losses = _uses(script, "backward")
    trains = losses and _uses(script, "step") and not any(_is_scaled_by_hand(e, script) for e in losses)
    if trains and "float16" in recorded and not scalers and not _uses(script, "scaled_backward"):
        yield ("fp16-without-scaler", recorded["float16"], "the region computes in float16, and no GradScaler is used: small gradients become 0",
               "scale the loss by a GradScaler, or use dtype=bfloat16")
    if scalers and set(low) == {"bfloat16"} and not _switched(scalers[0].node):
        yield ("scaler-without-fp16", scalers[0].line, "every autocast region is bfloat16, which needs no GradScaler (it does no harm)",
               "leave it out")
    for call in script.calls:
        halves = name_of(call.func) == "half" and not call.args and isinstance(call.func, ast.Attribute)
        if not halves or not scalers or _switched(scalers[0].node):
            continue
        together = any(_together(script, call, s) for s in scalers) and not _ends_training(script, call)
        if together and text_of(call.func.value).split(".")[-1] in ("model", "net", "network"):  # type: ignore[attr-defined]
            yield ("half-model-with-scaler", call.lineno, "the model's parameters become float16, and a GradScaler refuses float16 gradients",
                   "leave .half() out: autocast chooses float16 for the products, and parameters stay float32")


def _is_scaled_by_hand(e: Event, script: Script) -> bool:
    """(loss * scale).backward(), loss.backward(scale): a scale of the script's own."""
    scope = scope_of(script, e.scope)
    losses = [*e.node.args, *(k.value for k in e.node.keywords)]
    for loss in [*losses, *([e.node.func.value] if isinstance(e.node.func, ast.Attribute) else [])]:
        behind = scope.resolve(loss)
        factors = scope.pair(behind, ast.Mult, "mul", "multiply") or ()
        large = any(isinstance(n, ast.Constant) and isinstance(n.value, (int, float)) and n.value >= 8 for n in map(scope.resolve, factors))
        if large or speaks_of(loss, "scale", scope) or isinstance(behind, ast.Call) and speaks_of(behind, "scale", scope):
            return True
    return False


def _ends_training(script: Script, call: ast.Call) -> bool:
    """Whether the training that the call's function shows, or one that calls it, is over at the call: model.half() before an export."""
    training, over = ("backward", "scaled_backward", "scaler_step", "step", "new_scaler"), False
    for scope in script.scopes():
        events = script.followed(scope)
        for i, e in enumerate(events):
            if e.node is call:
                trained = [o for o in events[:i] if o.kind in training]
                again = any(o.kind in training for o in events[i:]) or any(o.loops[:1] == e.loops[:1] != () for o in trained)
                if again:
                    return False
                over = over or bool(trained) and any(o.kind != "new_scaler" for o in trained)
    return over


def _together(script: Script, call: ast.Call, scaler: Event) -> bool:
    """Whether a call is for the training with that scaler: one of the two is outside all functions, both are in one, or the function of
    one of them is called by the other's."""
    around = next((f for f in reversed(script.functions) if any(n is call for n in ast.walk(f))), None)
    if around is None or not isinstance(scaler.scope, (ast.FunctionDef, ast.AsyncFunctionDef)) or around is scaler.scope:
        return True
    pairs = ((around, scaler.scope), (scaler.scope, around))
    return any(name_of(n.func) == b.name for a, b in pairs for n in ast.walk(a) if isinstance(n, ast.Call))


def _switched(call: ast.Call) -> bool:
    return any(k.arg == "enabled" for k in call.keywords)


def dtype_of_region(call: ast.Call, script: Script) -> str:
    """What a call of autocast makes products compute in; '?' where the script does not say it."""
    dtype = next((k.value for k in call.keywords if k.arg == "dtype"), None)
    first = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "device_type"), None)
    if dtype is not None:
        name = {"half": "float16"}.get(name_of(dtype), name_of(dtype))
    elif isinstance(first, ast.Constant) and first.value in ("cuda", "cpu"):
        name = "float16" if first.value == "cuda" else "bfloat16"
    else:
        name = "float16" if ".cuda." in script.full(call.func) else ""
    return name if name in ("float16", "bfloat16") else "?"


def regions_dtypes(script: Script, but: Optional[set] = None) -> Any:
    """dtype -> line of the first autocast that computes in it, where the script says which. ``but``: ids of calls that do not count."""
    found: dict = {}
    for call in script.calls:
        if name_of(call.func) != "autocast" or is_off(call) or but and id(call) in but:
            continue
        found.setdefault(dtype_of_region(call, script), call.lineno)
    return found


@_rule
def waiting(script: Script) -> Iterator[Found]:
    for scope, events in script.scopes().items():
        training = {e.loops for e in script.followed(scope) if e.kind in ("backward", "scaled_backward") and e.loops}
        for e in events:
            if e.kind == "item" and e.loops in training and not e.branches:
                yield ("item-each-step", e.line, f"{text_of(e.node)} waits for the device in every step, which costs time on a GPU",
                       "add up tensors (total += loss.detach()) and call .item() once, after the loop or every so many steps")


@_rule
def checkpoints(script: Script) -> Iterator[Found]:
    if not _uses(script, "new_scaler"):
        return
    text = [text_of(e.node) for e in _uses(script, "save")] + [text_of(n) for n in ast.walk(script.tree) if isinstance(n, ast.Dict)]
    if any("scaler" in t and "state_dict" in t for t in text):
        return
    for e in _uses(script, "save"):
        written = text_of(e.node)
        named = e.node.args[0] if e.node.args else None
        if isinstance(named, ast.Name):
            written += " ".join(text_of(n.value) for n in ast.walk(script.tree) if isinstance(n, ast.Assign) and text_of(n.targets[0]) == named.id)
        if "opt" in written and "state_dict" in written:
            yield ("scaler-not-saved", e.line, "the checkpoint has the optimizer's state but not the scaler's, so a resumed run starts "
                   "at the initial scale", "save scaler.state_dict() too, and load it")


@_rule
def spellings(script: Script) -> Iterator[Found]:
    for call in script.calls:
        full = script.full(call.func)
        parts = full.split(".")
        if len(parts) == 4 and parts[0] == "torch" and parts[2] == "amp" and parts[1] in ("cuda", "cpu"):
            now = "torch.amp.GradScaler" if parts[3] == "GradScaler" else f"torch.amp.{parts[3]}"
            argument = f"device_type='{parts[1]}'" if parts[3].startswith("custom") else f"'{parts[1]}'"
            yield ("deprecated-spelling", call.lineno, f"{full} is deprecated", f"write {now}({argument}, ...)")
