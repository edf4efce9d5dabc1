"""Finds the calls of a script that matter to mixed precision, in the order of lines, with the loops, branches and regions around each.

A name is understood if an assignment in the same file says what it is."""

from __future__ import annotations

import ast
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

# Packages whose arrays are not torch's, and those that bring torch along where a script does not import it itself.
OTHERS = frozenset({"numpy", "jax", "tensorflow", "cupy", "mxnet", "paddle", "mindspore", "tinygrad", "mlx", "keras", "autograd", "scipy",
                    "pandas", "sympy"})
WITH_TORCH = frozenset({"torch", "ampc", "genesis", "torchvision", "lightning", "pytorch_lightning", "transformers", "accelerate", "timm", "fastai"})
MOST = 2000  # events of a function and of those that it calls
CLIPS = {"clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_"}
RESCALES = {"div_", "divide_", "true_divide_", "mul_", "multiply_", "copy_", "_foreach_div_", "_foreach_mul_"}


class Event(NamedTuple):
    """One call."""

    # backward scaled_backward bce clip unscale scaler_step update step zero schedule new_scaler half rescale scale item save call (of its own)
    kind: str
    node: Any  # the call; of a rescale also the assignment
    who: str  # whose method it is, as written
    scope: Any  # the function or module
    loops: Tuple[int, ...]  # lines of the loops around it, outermost first
    branches: Tuple[Tuple[int, str], ...]  # ifs around it: line and arm
    autocast: str  # the device of the autocast region around it in its function: cpu, or ? for any other; "" without one
    via: Tuple[int, ...] = ()  # lines of the calls that lead to the function that it is in, where calls are followed
    names: Tuple[Tuple[str, str], ...] = ()  # parameters of that function, and what the first of those calls passes for them

    @property
    def line(self) -> int:
        return self.node.lineno


def text_of(node: ast.AST) -> str:
    """As written, on one line."""
    return ast.unparse(node)


def name_of(node: ast.AST) -> str:
    """The last part of a dotted name: GradScaler of torch.cuda.amp.GradScaler."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def arm(node: Any, name: str) -> Tuple[int, str]:
    """A branch of what is no `if` statement; a negative number stands for its place, so that it is never taken for a line."""
    return -(node.lineno * 1000 + node.col_offset), name


def is_off(call: ast.Call) -> bool:
    """enabled=False, written so."""
    return any(k.arg == "enabled" and isinstance(k.value, ast.Constant) and not k.value.value for k in call.keywords)


def _is_of_cpu(node: ast.AST) -> bool:
    """autocast("cpu"), autocast(device_type="cpu"), torch.cpu.amp.autocast()."""
    if not isinstance(node, ast.Call):
        return False
    devices = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "device_type")]
    return any(isinstance(d, ast.Constant) and d.value == "cpu" for d in devices) or ".cpu." in text_of(node.func)


def _arms(node: ast.AST) -> Dict[int, Tuple[Tuple[int, str], ...]]:
    """The ids of nodes within `a if c else b`, with the arms that they are in."""
    found: Dict[int, Tuple[Tuple[int, str], ...]] = {}
    for choice in (n for n in ast.walk(node) if isinstance(n, ast.IfExp)):
        for name, part in (("if", choice.body), ("else", choice.orelse)):
            for n in ast.walk(part):
                found[id(n)] = (*found.get(id(n), ()), arm(choice, name))
    return found


def _rescales(s: ast.stmt) -> bool:
    """p.grad /= s, p.grad = p.grad / s: what may divide gradients by a scale."""
    if isinstance(s, ast.AugAssign):
        return isinstance(s.op, (ast.Div, ast.Mult))
    return isinstance(s, ast.Assign) and any(name_of(t) == "grad" for t in s.targets)


class Script:
    """A parsed file."""

    def __init__(self, source: str, file: str) -> None:
        self.source, self.file = source, file
        self.tree = ast.parse(source, file)
        self.imported = self._imports()
        self.made: Dict[str, str] = {}  # what an assigned name is: scaler optimizer scheduler autocast scaled bce
        self.of_cpu: set = set()  # names of autocast regions of the CPU
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                kind = self.kind_of(node.value)
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if kind and isinstance(target, (ast.Name, ast.Attribute)):
                        self.made[text_of(target)] = kind
                        self.of_cpu.update([text_of(target)] if kind == "autocast" and _is_of_cpu(node.value) else [])
        self.functions = [n for n in ast.walk(self.tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]  # outer ones first
        self.calls = [n for n in ast.walk(self.tree) if isinstance(n, ast.Call)]
        self._read_classes()
        self._bind_parameters()
        self.events = list(self._walk(self.tree.body, self.tree, (), (), ""))
        self._scopes: Dict[Any, List[Event]] = {}
        self._followed: Dict[Any, List[Event]] = {}

    # -- names ----------------------------------------------------------------------------------------------

    @property
    def of_others(self) -> bool:
        """Whether the script computes with another package, and nothing in it says that it uses torch."""
        roots = {name.split(".")[0] for name in self.imported.values()}
        return bool(roots & OTHERS) and not roots & WITH_TORCH and "GradScaler" not in self.source

    def is_foreign(self, node: ast.AST) -> bool:
        """Whether the value is what a function of another package returned: np.asarray(x)."""
        return isinstance(node, ast.Call) and self.full(node.func).split(".")[0] in OTHERS and name_of(node.func) != "from_numpy"

    def _read_classes(self) -> None:
        """Which functions are methods, and of which class the names of instances are."""
        self.classes = {n.name: n for n in ast.walk(self.tree) if isinstance(n, ast.ClassDef)}
        self.class_of = {f: c for c in self.classes.values() for f in ast.walk(c) if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef))}
        self.plain: Dict[str, list] = {}  # functions that are no methods, by their names
        for f in self.functions:
            if f not in self.class_of or f not in self.class_of[f].body:
                self.plain.setdefault(f.name, []).append(f)
        self.instances: Dict[str, ast.ClassDef] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and name_of(node.value.func) in self.classes:
                self.instances.update({text_of(t): self.classes[name_of(node.value.func)] for t in node.targets})

    def _bind_parameters(self) -> None:
        """A parameter is what the calls of this file pass for it."""
        for name in {text_of(c.func.value) for c in self.calls if isinstance(c.func, ast.Attribute) and c.func.attr == "unscale_"}:
            self.made.setdefault(name, "scaler")
        self.around = {id(n): f for f in self.functions for n in ast.walk(f)}  # the function that a node is in; inner ones come later
        for _ in range(2):  # through a function in between, too
            for call in self.calls:
                for name, value in self._passed(call, self.called(call, self.around.get(id(call)))):
                    kind = next((k for k in ("scaler", "optimizer", "scheduler") if self.is_a(k, value)), "")
                    if kind:
                        self.made.setdefault(name, kind)

    def _passed(self, call: ast.Call, body: Any) -> List[Tuple[str, ast.expr]]:
        """The parameters of a function of this file with what a call passes for them."""
        if not isinstance(body, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return []
        names = [a.arg for a in body.args.args]
        names = names[1:] if isinstance(call.func, ast.Attribute) and names[:1] in (["self"], ["cls"]) else names
        return [*zip(names, call.args), *((k.arg, k.value) for k in call.keywords if k.arg)]

    def called(self, call: ast.Call, scope: Any) -> Optional[ast.AST]:
        """The function of this file that a call runs; None for any other, and where several have the name."""
        if isinstance(call.func, ast.Name):
            named = self.plain.get(call.func.id, [])
            return named[0] if len(named) == 1 else None
        if not isinstance(call.func, ast.Attribute):
            return None
        text = text_of(call.func.value)
        return self._method(self.class_of.get(scope) if text in ("self", "cls") else self.instances.get(text), call.func.attr)

    def _method(self, of: Optional[ast.ClassDef], name: str) -> Optional[ast.AST]:
        """A class's method, or one of its bases in this file."""
        for _ in range(8):
            if of is None:
                return None
            for node in of.body:
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
                    return node
            of = next((self.classes[name_of(b)] for b in of.bases if name_of(b) in self.classes), None)
        return None

    def _imports(self) -> Dict[str, str]:
        """Local name -> full name, of torch's (or ampc's) things."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for a in node.names:
                    found[a.asname or a.name.split(".")[0]] = a.name if a.asname else a.name.split(".")[0]
            elif isinstance(node, ast.ImportFrom) and node.module:
                for a in node.names:
                    found[a.asname or a.name] = f"{node.module}.{a.name}"
        return found

    def full(self, node: ast.AST) -> str:
        """torch.cuda.amp.autocast, whatever it is called here; '' for what is no name. ampc counts as torch."""
        parts: List[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        root = self.imported.get(node.id, node.id)
        return re.sub(r"^(ampc|genesis)\b", "torch", ".".join([root, *reversed(parts)]))

    def kind_of(self, value: ast.AST) -> str:
        """What a value is: scaler optimizer scheduler autocast scaled bce; '' for anything else."""
        if not isinstance(value, ast.Call):
            if isinstance(value, ast.IfExp):  # nullcontext() if ... else autocast(...)
                return self.kind_of(value.body) or self.kind_of(value.orelse)
            return ""
        full, name = self.full(value.func), name_of(value.func)
        if name == "GradScaler":
            return "scaler"
        if name == "autocast":
            return "autocast"
        if ".optim.lr_scheduler." in full or name.endswith(("LR", "Scheduler", "_with_warmup")):
            return "scheduler"
        if ".optim." in full or full.startswith("torch.optim."):
            return "optimizer"
        if name == "scale" and isinstance(value.func, ast.Attribute) and self.is_a("scaler", value.func.value):
            return "scaled"
        return "bce" if name == "BCELoss" else ""

    def is_a(self, kind: str, node: ast.AST) -> bool:
        """By its assignment, or, for what comes from elsewhere, by its name."""
        text = text_of(node)
        if text in self.made:
            return self.made[text] == kind
        last = text.split(".")[-1].split("[")[0].lower()
        patterns = {"scaler": r"(grad_?|amp_?|loss_?)?scaler", "optimizer": r".*optim(izer)?s?(_?[a-z0-9])?|opt(_[a-z0-9]+)?", "scheduler":
                    r".*sched(uler)?s?", "autocast": r"autocast|amp_ctx|autocast_ctx"}
        return kind in patterns and re.fullmatch(patterns[kind], last) is not None

    # -- walking ---------------------------------------------------------------------------------------------

    def _walk(self, body: List[ast.stmt], scope: Any, loops: tuple, branches: tuple, autocast: str) -> Iterator[Event]:
        for s in body:
            here = (scope, loops, branches, autocast)
            if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from self._walk(s.body, s, (), (), self._region(s.decorator_list, ""))
            elif isinstance(s, ast.ClassDef):
                yield from self._walk(s.body, s, (), (), "")
            elif isinstance(s, (ast.For, ast.AsyncFor, ast.While)):
                yield from self._in(s.iter if not isinstance(s, ast.While) else s.test, *here)
                yield from self._walk(s.body, scope, (*loops, s.lineno), branches, autocast)
                yield from self._walk(s.orelse, *here)
            elif isinstance(s, ast.If):
                yield from self._in(s.test, *here)
                yield from self._walk(s.body, scope, loops, (*branches, (s.lineno, "if")), autocast)
                yield from self._walk(s.orelse, scope, loops, (*branches, (s.lineno, "else")), autocast)
            elif isinstance(s, (ast.With, ast.AsyncWith)):
                yield from self._walk(s.body, scope, loops, branches, self._region([i.context_expr for i in s.items], autocast))
            elif isinstance(s, ast.Try):
                yield from self._walk(s.body, *here)
                for h in s.handlers:
                    yield from self._walk(h.body, scope, loops, (*branches, arm(h, "except")), autocast)
                yield from self._walk([*s.orelse, *s.finalbody], *here)
            elif hasattr(s, "cases"):  # match
                for i, case in enumerate(s.cases):
                    yield from self._walk(case.body, scope, loops, (*branches, arm(s, f"case {i}")), autocast)
            else:
                yield from self._in(s, *here)
                if _rescales(s):
                    yield Event("rescale", s, "", scope, loops, branches, autocast)

    def _region(self, nodes: List[ast.expr], around: str) -> str:
        """The device of the innermost region: of these contexts, or the one around."""
        for node in nodes:
            if name_of(node.func if isinstance(node, ast.Call) else node) == "autocast" or self.is_a("autocast", node):
                off = isinstance(node, ast.Call) and is_off(node)
                around = "" if off else "cpu" if _is_of_cpu(node) or text_of(node) in self.of_cpu else "?"
        return around

    def _in(self, node: ast.AST, scope: Any, loops: tuple, branches: tuple, autocast: str) -> Iterator[Event]:
        calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
        arms = _arms(node)
        for call in sorted(calls, key=lambda c: (c.end_lineno or 0, c.end_col_offset or 0)):  # inner ones first
            kind = self._event(call, scope)
            if kind:
                who = text_of(call.func.value) if isinstance(call.func, ast.Attribute) else ""
                yield Event(kind, call, who, scope, loops, (*branches, *arms.get(id(call), ())), autocast)

    def _event(self, call: ast.Call, scope: Any) -> str:
        name = name_of(call.func)
        if name in CLIPS:
            return "clip"
        if name == "GradScaler":
            return "new_scaler"
        if name == "binary_cross_entropy" or self.made.get(text_of(call.func)) == "bce" or self.kind_of(call.func) == "bce":
            return "bce"
        if self.called(call, scope) is not None:
            return "call"
        if name in RESCALES or "unscale" in name and name != "unscale_":  # or what another file has for it
            return "rescale"
        return self._method_event(call, name) if isinstance(call.func, ast.Attribute) else ""

    def _method_event(self, call: Any, name: str) -> str:
        of = call.func.value
        if name == "backward":
            return "scaled_backward" if self._is_scaled(of) else "backward"
        if name == "step":
            kinds = {"scaler": "scaler_step", "scheduler": "schedule", "optimizer": "step"}
            return next((kinds[k] for k in kinds if self.is_a(k, of)), "")
        if name == "unscale_":  # whatever the scaler is called
            return "unscale"
        if name in ("update", "scale") and self.is_a("scaler", of):
            return str(name)
        if name == "save" and self.full(call.func) == "torch.save":
            return "save"
        return {"item": "item", "half": "half", "zero_grad": "zero"}.get(name, "") if not call.args or name == "zero_grad" else ""

    def _is_scaled(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call) and name_of(node.func) == "scale" and isinstance(node.func, ast.Attribute):
            return self.is_a("scaler", node.func.value)
        return isinstance(node, (ast.Name, ast.Attribute)) and self.is_a("scaled", node)

    def scopes(self) -> Dict[Any, List[Event]]:
        """The events of each function, and of the module."""
        if not self._scopes:
            for e in self.events:
                self._scopes.setdefault(e.scope, []).append(e)
        return self._scopes

    def followed(self, scope: Any) -> List[Event]:
        """The events of a function in order, with those of the file's functions that it calls in the calls' places."""
        if scope not in self._followed:
            self._followed[scope] = []  # what a function that calls itself adds
            self._followed[scope] = list(self._follow(scope))[:MOST]
        return self._followed[scope]

    def _follow(self, scope: Any) -> Iterator[Event]:
        for e in self.scopes().get(scope, []):
            body = self.called(e.node, scope) if e.kind == "call" else None
            if body is None:
                yield e
            passed = {name: text_of(value) for name, value in self._passed(e.node, body)} if body is not None else {}
            if body is not None and isinstance(e.node.func, ast.Attribute):
                passed["self"] = e.who
            for o in self.followed(body) if body is not None else []:
                names = tuple((name, passed.get(text, text)) for name, text in o.names) if o.via else tuple(passed.items())
                yield o._replace(loops=e.loops + o.loops, branches=e.branches + o.branches, autocast=e.autocast or o.autocast, via=(e.line, *o.via),
                                 names=names)

    def function(self, name: str) -> Optional[ast.AST]:
        """The function of that name."""
        return next((n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef) and n.name == name), None)
