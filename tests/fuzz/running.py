"""Runs a program's lines in one library, looks at all variables after each, and compares what two libraries came to."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import math
import pickle
import re
import threading
import warnings
from dataclasses import dataclass, field
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from .operations import HELPERS
from .program import Program, Step, helpers

EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
LARGEST = {"float64": np.finfo(np.float64).max, "float32": float(np.finfo(np.float32).max), "float16": 65504.0, "bfloat16": 3.3895e38}
SMALLEST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
VARIABLE = re.compile(r"v\d+$")


class Seen(NamedTuple):
    """What is seen of a tensor."""

    dtype: str
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    requires_grad: Optional[bool]
    leaf: Optional[bool]
    version: Optional[int]
    span: Tuple[int, int]  # the first byte, and one past the last
    values: Any
    loose: bool  # of strides that the library was free to choose


@dataclass
class Outcome:
    """After a line: what it raised, and what all variables are."""

    error: Optional[str] = None
    message: str = ""
    seen: Dict[str, Any] = field(default_factory=dict)
    log: list = field(default_factory=list)

    def tensors(self) -> Dict[str, Seen]:
        return {name: s for name, s in self.seen.items() if isinstance(s, Seen)}


@functools.lru_cache(maxsize=4096)
def compiled(source: str, mode: str = "exec") -> Any:
    return compile(source, "<program>", mode)


def family(error: BaseException) -> str:
    """The built-in type that an exception is of; what a library lacks a kernel for is a RuntimeError, as any other."""
    name = next(t.__name__ for t in type(error).__mro__ if t.__module__ == "builtins")
    return "RuntimeError" if name == "NotImplementedError" else name


class World:
    """The variables of a program in one library."""

    def __init__(self, library: Any) -> None:
        self.library, self.context, self.stack = library, "", contextlib.ExitStack()
        self.names: Dict[str, Any] = {"torch": library, "copy": copy, "pickle": pickle, "threading": threading, "io": io, "log": []}
        self.loose: set = set()
        self.storages: set = set()  # of the last inspection
        self.met: set = set()  # of this one
        self.is_torch = library.__name__ == "torch"
        self.waits = library.__name__ == "ampc" and library.get_default_device().type == "cuda"  # a GPU tells of bad indices later

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: Any) -> None:
        self.stack.close()

    def enter(self, context: str) -> None:
        if context != self.context:
            self.stack.close()
            self.stack, self.context = contextlib.ExitStack(), context
            if context:
                for manager in eval(compiled(f"({context},)", "eval"), self.names):
                    self.stack.enter_context(manager)

    def run(self, step: Step, inspect: bool = True) -> Outcome:
        self.enter(step.context)
        for name in helpers(step.source):
            if name not in self.names:
                exec(compiled(HELPERS[name]), self.names)
        error = message = None
        try:
            exec(compiled(step.source), self.names)
            if self.waits:
                self.library.cuda.synchronize()
        except Exception as e:
            error, message = family(e), str(e)
            if self.waits:
                with contextlib.suppress(Exception):  # one error a line is told, as on the CPU
                    self.library.cuda.synchronize()
        return Outcome(error, message or "", self.inspect() if inspect else {}, list(self.names["log"]))

    def inspect(self) -> Dict[str, Any]:
        seen: Dict[str, Any] = {}
        for name, value in self.names.items():
            if name[0] == "v" and VARIABLE.match(name):
                self.add(seen, name, value)
        self.storages, self.met = self.met, set()
        return seen

    def add(self, seen: Dict[str, Any], name: str, value: Any) -> None:
        if isinstance(value, self.library.Tensor):
            seen[name] = self.tensor(value)
            if (seen[name].leaf or seen[name].leaf is False and value.retains_grad) and value.grad is not None:
                seen[name + ".grad"] = self.tensor(value.grad)
        elif isinstance(value, (list, tuple)) and not isinstance(value, self.library.Size):
            seen[name] = (type(value).__name__ if type(value) in (list, tuple) else "named", len(value))
            for i, v in enumerate(value):
                self.add(seen, f"{name}[{i}]", v)
        elif value is None or isinstance(value, (bool, int, float, str)):
            seen[name] = (type(value).__name__, value)
        else:
            seen[name] = ("other", str(value).rsplit(".", 1)[-1] if isinstance(value, self.library.dtype) else type(value).__name__)

    def tensor(self, t: Any) -> Seen:
        shape, strides, dtype = tuple(t.shape), tuple(t.stride()), str(t.dtype).rsplit(".", 1)[-1]
        n, first = t.numel(), t.data_ptr()
        end = first + (1 + sum((s - 1) * abs(d) for s, d in zip(shape, strides))) * t.element_size() if n else first
        try:
            version = t._version
        except RuntimeError:  # tensors made in inference mode have none
            version = None
        loose = False
        if self.is_torch:
            try:
                storage = t.untyped_storage().data_ptr()
            except RuntimeError:  # torch has lost the storage of some gradients
                storage = first
            if storage not in self.storages and storage not in self.met:
                (self.loose.discard if t.is_contiguous() else self.loose.add)(storage)
            self.met.add(storage)
            loose = storage in self.loose
        try:
            history = t.requires_grad, t.is_leaf
        except RuntimeError:  # torch has lost the history of some views that were written to, and refuses to tell
            history = None, None
        try:
            values = t.tolist()
        except RuntimeError:  # torch has lost the storage of some gradients
            values = None
        return Seen(dtype, shape, strides, *history, version, (first, end), values, loose)


# -- comparing -------------------------------------------------------------------------------------------------------


@dataclass
class Difference:
    program: Program
    at: int  # the line's index
    kind: str  # "exception", "value", "version", ...
    name: str  # the variable
    torch: Any
    ampc: Any
    message: str = ""  # of the exceptions
    empty: bool = False  # what differs, or something that the line names, has no elements
    overlapping: bool = False  # two variables that the line names lie in the same memory
    outlived: bool = False  # torch comes to ampc's numbers if it may keep what is saved for backward from being overwritten
    trace: List[Dict[str, Any]] = field(default_factory=list)  # what torch's variables were after each line

    @property
    def step(self) -> Step:
        return self.program.steps[self.at]

    @property
    def key(self) -> Tuple[str, str]:
        """What stays the same while the program shrinks."""
        return self.kind, f"{self.torch}/{self.ampc}" if self.kind == "exception" else ""

    def __str__(self) -> str:
        return f"{self.kind} of {self.name or 'the line'} after `{self.step}`\n  torch: {self.torch}\n  ampc:  {self.ampc}" + (
            f"\n  {self.message}" if self.message else "")


def groups(seen: Dict[str, Seen]) -> Dict[str, Tuple[str, int]]:
    """For each tensor, the first variable whose memory it shares, and how far behind that one it begins."""
    order = {name: i for i, name in enumerate(seen)}
    by_span = sorted((s.span, name) for name, s in seen.items() if s.span[1] > s.span[0])
    joined: List[List[str]] = []
    end = -1
    for (first, last), name in by_span:
        if first < end:
            joined[-1].append(name)
        else:
            joined.append([name])
        end = max(end, last)
    result = {}
    for names in joined:
        root = min(names, key=order.__getitem__)
        for name in names:
            result[name] = (root, seen[name].span[0] - seen[root].span[0])
    return result


def steps_matter(shape: Tuple[int, ...], strides: Tuple[int, ...]) -> List[int]:
    return [d for s, d in zip(shape, strides) if s > 1]


BACKWARD = re.compile(r"backward|autograd\.grad|\.step\(")


# These write no elements, and so no version here; torch counts them as writes.
GEOMETRY = re.compile(r"\.(t|transpose|swapaxes|squeeze|unsqueeze|set)_\(")


def room(step: Step, before: Dict[str, Any], torch: Outcome, lowest: float) -> Tuple[float, float]:
    """The relative precision of what a line computes in, and the size of what it adds up."""
    involved = set(re.findall(r"\bv\d+", step.source))
    all_of = BACKWARD.search(step.source) is not None
    eps, scale = 0.0, 0.0
    for name, s in (*before.items(), *torch.seen.items()):
        if isinstance(s, Seen) and s.dtype in EPS and (all_of or re.match(r"v\d+", name).group() in involved or name not in before):  # type: ignore[union-attr]
            eps = max(eps, EPS[s.dtype])
            for v in np.asarray(s.values if s.values is not None else 0.0).ravel():
                if scale < abs(v) < math.inf:
                    scale = abs(v)
    if "bfloat16" in step.context:
        eps = max(eps, EPS["bfloat16"])
    elif "autocast" in step.context:
        eps = max(eps, EPS["float16"])
    return max(eps, lowest if all_of else 0.0), scale


def close(a: Any, t: Any, dtype: str, eps: float, scale: float, spread: Any = 0.0) -> bool:
    a, t = np.asarray(a, np.float64), np.asarray(t, np.float64)
    eps = max(eps, EPS[dtype])
    low = eps > 1e-5
    with np.errstate(all="ignore"):
        room = (4 if low else 32) * eps * np.abs(t) + (2 if low else 32) * eps * scale + 4 * SMALLEST[dtype] + 16 * spread
        largest = LARGEST[dtype] * (1 - 4 * EPS[dtype])
        return bool(np.all((a == t) | (np.isnan(a) & np.isnan(t)) | (np.abs(a - t) <= room) | ((np.abs(a) >= largest) & (np.abs(t) >= largest) & (np.sign(a) == np.sign(t)))))


def written(now: Any, before: Any) -> bool:
    """Whether the version tells of a write since. By how many, a composition's own steps among them, is each library's business."""
    return isinstance(now, Seen) and isinstance(before, Seen) and now.version != before.version


def compare(program: Program, at: int, ampc: Outcome, torch: Outcome, before: Dict[str, Any], ours: Dict[str, Any], lowest: float = 0.0,
            spread: Optional[Dict[str, Any]] = None) -> Optional[Difference]:
    """The first difference after a line; `before` and `ours` are what torch and ampc had before it."""
    def differ(kind: str, name: str, t: Any, a: Any) -> Difference:
        named = set(re.findall(r"\bv\d+", program.steps[at].source + " " + name))
        empty = any(isinstance(s, Seen) and 0 in s.shape and n.split("[")[0].split(".")[0] in named for n, s in (*before.items(), *torch.seen.items()))
        shared = [root for n, (root, _) in groups({n: s for n, s in before.items() if isinstance(s, Seen)}).items() if n.split("[")[0] in named]
        return Difference(program, at, kind, name, t, a, empty=empty, overlapping=len(set(shared)) < len(shared), message=" | ".join(filter(None, [torch.message and "torch: " + torch.message[:160], ampc.message and "ampc: " + ampc.message[:160]])))

    if ampc.error != torch.error:
        return differ("exception", "", torch.error, ampc.error)
    if list(ampc.seen) != list(torch.seen):
        only = [n for n in torch.seen if n not in ampc.seen] or [n for n in ampc.seen if n not in torch.seen]
        return differ("existence", only[0] if only else "", only[:1] and only[0] in torch.seen, only[:1] and only[0] in ampc.seen)
    precision: Optional[Tuple[float, float]] = None
    for name, t in torch.seen.items():
        a = ampc.seen[name]
        if not isinstance(t, Seen) or not isinstance(a, Seen):
            if type(a) is not type(t) or (a != t and not (isinstance(t, tuple) and t[0] == a[0] == "float")):
                return differ("result", name, t, a)
            if a != t:
                precision = precision or room(program.steps[at], before, torch, lowest)
                if not close(a[1], t[1], "float32", *precision):
                    return differ("value", name, t[1], a[1])
            continue
        grad = name.endswith(".grad")
        for what in ("dtype", "shape", "requires_grad", "leaf"):
            if getattr(t, what) != getattr(a, what) and getattr(t, what) is not None:
                return differ(what, name, getattr(t, what), getattr(a, what))
        if not grad and t.version is not None and not GEOMETRY.search(program.steps[at].source) and 0 not in t.shape and name in before and name in ours and written(t, before[name]) != written(a, ours[name]):
            return differ("version", name, written(t, before[name]) and "written", written(a, ours[name]) and "written")
        if not grad and not t.loose and 0 not in t.shape and steps_matter(t.shape, t.strides) != steps_matter(a.shape, a.strides):
            return differ("strides", name, t.strides, a.strides)
        if t.values != a.values and t.values is not None:
            if t.dtype in EPS:
                precision = precision or room(program.steps[at], before, torch, lowest)
                if close(a.values, t.values, t.dtype, *precision, spread=0.0 if spread is None else spread.get(name, 0.0)):
                    continue
            return differ("value", name, t.values, a.values)
    if ampc.log != torch.log and not all(same(a, t) for a, t in zip(ampc.log, torch.log)) or len(ampc.log) != len(torch.log):
        return differ("log", "log", torch.log, ampc.log)
    of_torch, of_ampc = groups(torch.tensors()), groups(ampc.tensors())
    for name, (root, distance) in of_torch.items():
        if of_ampc[name][0] != root or (of_ampc[name][1] != distance and not torch.seen[name].loose):
            return differ("aliasing", name, (root, distance), of_ampc[name])
    return None


def same(a: Any, t: Any) -> bool:
    """Of entries of a log."""
    if isinstance(a, (list, tuple)) and isinstance(t, (list, tuple)):
        return len(a) == len(t) and all(same(x, y) for x, y in zip(a, t))
    if isinstance(a, float) and isinstance(t, float):
        return a == t or (a != a and t != t) or abs(a - t) <= 0.05 * max(abs(t), 1)
    return bool(a == t)


# -- two libraries ---------------------------------------------------------------------------------------------------


def precision_of(program: Program, upto: int, torch: Outcome) -> float:
    """The coarsest that anything so far has been computed in: gradients come back through it."""
    eps = max([EPS.get(s.dtype, 0.0) for s in torch.tensors().values() if s.dtype in EPS], default=0.0)
    for step in program.steps[:upto + 1]:
        text = str(step)
        for dtype in ("float16", "bfloat16"):
            if re.search(rf"\b{dtype}|half\(" if dtype == "float16" else rf"\b{dtype}", text):
                eps = max(eps, EPS[dtype])
    return eps


def give(world: World, outcome: Outcome, ampc: Outcome) -> None:
    """Gives ampc's numbers to torch, so that the lines to come are compared on the same operands."""
    library = world.library
    for name, a in ampc.tensors().items():
        t = outcome.seen.get(name)
        if isinstance(t, Seen) and a.dtype == t.dtype and a.shape == t.shape and a.values != t.values:
            with contextlib.suppress(Exception), library.inference_mode(False), library.no_grad():
                target = eval(name, world.names).data
                target.copy_(library.tensor(a.values, dtype=target.dtype))


def shaken(library: Any, program: Program, upto: int, torch: List[Outcome], seed: int) -> Dict[str, Any]:
    """torch again, with every result moved by about as much as rounding may: how far each variable then goes. Gradients too, by hooks."""
    rng = np.random.default_rng(seed)

    def noise(t: Any) -> Any:
        eps = EPS.get(str(t.dtype).rsplit(".", 1)[-1])
        return None if eps is None else t * library.tensor(1 + 2 * eps * rng.choice([-1.0, 0.0, 1.0], tuple(t.shape)), dtype=library.float64).to(t.dtype)

    known: set = set()
    with World(library) as world:
        for i, step in enumerate(program.steps[:upto + 1]):
            outcome = world.run(step)
            if i == upto:
                break
            for name, s in outcome.tensors().items():
                old = torch[i - 1].seen.get(name) if i else None
                if s.dtype in EPS and not name.endswith(".grad") and (not isinstance(old, Seen) or old.version != s.version or old.values != s.values):
                    with contextlib.suppress(Exception), library.inference_mode(False):
                        t = eval(name, world.names)
                        if t.requires_grad and not t.is_leaf and name not in known:
                            t.register_hook(noise)
                        known.add(name)
                        with library.no_grad():
                            t.data.copy_(noise(t.data))
        spread = {}
        for name, s in outcome.tensors().items():
            t = torch[upto].seen.get(name)
            if s.dtype in EPS and isinstance(t, Seen) and t.shape == s.shape:
                with np.errstate(all="ignore"):
                    d = np.abs(np.asarray(s.values, np.float64) - np.asarray(t.values, np.float64))
                    spread[name] = np.where(np.isfinite(d), d, 0.0).max(initial=0.0)
    return spread


def apart(f: Any, *args: Any) -> Any:
    """In a thread of its own, whose modes are as they are at first."""
    results: List[Any] = []
    errors: List[Exception] = []

    def work() -> None:
        try:
            results.append(f(*args))
        except Exception as e:
            errors.append(e)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def outcomes(library: Any, program: Program) -> List[Outcome]:
    with World(library) as world:
        return [world.run(s) for s in program.steps]


def keeping(library: Any, program: Program, upto: int) -> List[Outcome]:
    """torch, saving copies of what is overwritten before backward needs it."""
    with library.autograd.graph.allow_mutation_on_saved_tensors():
        return outcomes(library, Program(program.steps[:upto + 1]))


def check(program: Program, torch: Any, ampc: Any, expected: Optional[List[Outcome]] = None) -> Optional[Difference]:
    """The first difference of a program's two runs that is not of last digits; None where there is none."""
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")
        expected = expected or outcomes(torch, program)
        got: List[Outcome] = []
        ours = stack.enter_context(World(ampc))
        follower, t = None, Outcome()
        for at, step in enumerate(program.steps):
            got.append(ours.run(step))
            before, t = t.seen, expected[at] if follower is None else follower.run(step)
            lowest = precision_of(program, at, t)
            d = compare(program, at, got[at], t, before, got[at - 1].seen if at else {}, lowest)
            if d is not None and follower is None and at:
                follower = stack.enter_context(World(torch))
                for i in range(at):
                    t = follower.run(program.steps[i])
                    give(follower, t, got[i])
                before, t = follower.inspect(), follower.run(step)
                d = compare(program, at, got[at], t, before, got[at - 1].seen if at else {}, lowest)
            if d is not None and d.kind in ("value", "log"):
                spreads = [apart(shaken, torch, program, at, expected, seed) for seed in range(4)]
                most = {name: max(s.get(name, 0.0) for s in spreads) for name in spreads[0]}
                d = compare(program, at, got[at], t, before, got[at - 1].seen if at else {}, lowest, most)
            if d is not None and d.ampc is None and "modified by an inplace operation" in d.message:
                kept = apart(keeping, torch, program, at)
                d.outlived = compare(program, at, got[at], kept[at], kept[at - 1].seen, got[at - 1].seen, lowest) is None or (
                    "derivative for" in kept[at].message)  # of an operator that torch has none of in this mode
            if d is not None:
                d.trace = [o.seen for o in expected[:at + 1]]
                return d
            if follower is not None:
                give(follower, t, got[at])
    return None
