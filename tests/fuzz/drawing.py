"""Draws programs. torch runs along, so that a line is drawn for tensors as they are."""

from __future__ import annotations

import math
import random
import re
import warnings
from typing import Any, List, Tuple

from .operations import CONTEXTS, TEMPLATES
from .program import Program, Step
from .running import Outcome, Seen, World

GROUPS = list(TEMPLATES)
WEIGHTS = [TEMPLATES[g][0] for g in GROUPS]
FLOATS = ["float32", "float32", "float32", "float64", "float16", "bfloat16"]
INTEGERS = ["int64", "int64", "int32", "int16", "int8", "uint8"]
LARGEST = 300  # elements of a tensor that stays
AT_ONCE = 2**20  # elements that the operands of a line may come to, multiplied; a line makes few such tensors, so a program stays below 64 MB


PLACES = {"last": "drawn"}  # of the places whose names are attributes of a Writer


class Unfit(Exception):
    """No variable fits the place."""


def room_of(shape: Tuple[int, ...]) -> int:
    """The elements of a tensor, empty dimensions counted as 1: else those beside them could grow without bound, and a sum over no rows would have them."""
    return math.prod(max(1, n) for n in shape)


class Writer:
    """Fills templates. A method of a place's name gives the text for it."""

    def __init__(self, rng: random.Random, world: World) -> None:
        self.rng, self.world, self.seen = rng, world, Outcome().seen
        a, b = rng.sample([1, 2, 3, 4], 2)
        self.shapes = [(a,), (b,), (a, b), (b, a), (a, a), (2, a, b), (a, 1), (1, b), ()]
        self.shapes = rng.sample(self.shapes, 4) + rng.sample([(0,), (0, a), (a, 0), (1,), (2, 2, 2), (1, a, 1, b), (3,), (2, 3)], 2)
        self.dtypes = rng.choice([["float32"], ["float32"], FLOATS, FLOATS + INTEGERS + ["bool"], ["float64"], ["float32", "bfloat16"], ["float32", "float16"]])
        self.special = rng.random() < 0.15
        self.count = {"v": 0, "h": 0, "m": 0}
        self.last: Tuple[str, Any] = ("", None)
        self.dim = "0"

    def fill(self, template: str) -> str:
        fresh = "{new}, " if " = " not in template.split("(")[0] and not template.startswith("!") and template != "{tensor}" else ""
        template = template.lstrip("!")
        if fresh or template == "{tensor}":
            template = "{new} = " + template
        count, self.last = dict(self.count), ("", None)
        try:
            source = re.sub(r"\{([a-z]\w*)\}", lambda m: str(getattr(self, PLACES.get(m.group(1), m.group(1)))()), template, flags=re.I)
            self.refuse_large(source)
            return source.replace("OUT", self.target(source)) if "=OUT" in source else source
        except Unfit:
            self.count = count
            raise

    def refuse_large(self, source: str) -> None:
        """Operands of several shapes may broadcast, or be multiplied each with each."""
        shapes = {s.shape for name in set(re.findall(r"\bv\d+", source)) if isinstance(s := self.seen.get(name), Seen)}
        if math.prod(map(room_of, shapes)) > AT_ONCE:
            raise Unfit

    @property
    def operand(self) -> Seen:
        """What the line is about: its first variable, mostly."""
        if self.last[1] is None:
            raise Unfit
        return self.last[1]

    # -- variables

    def named(self, letter: str) -> str:
        self.count[letter] += 1
        return f"{letter}{self.count[letter]}"

    def new(self) -> str:
        return self.named("v")

    def hook(self) -> str:
        return self.named("h")

    def module(self) -> str:
        return self.named("m")

    def one_of(self, letter: str) -> str:
        names = [n for n in self.world.names if re.match(rf"{letter}\d+$", n)]
        if not names:
            raise Unfit
        return self.rng.choice(names)

    def old_hook(self) -> str:
        return self.one_of("h")

    def old_module(self) -> str:
        return self.one_of("m")

    def pick(self, fits: Any = lambda s: True, remember: bool = True) -> str:
        """Rather a late variable than an early one."""
        names = [n for n, s in self.seen.items() if isinstance(s, Seen) and s.values is not None and not n.endswith(".grad") and fits(s)]
        if not names:
            raise Unfit
        n = len(names)
        name = names[min(n - 1, int(n * self.rng.random() ** 0.6))]
        if remember:
            self.last = name, self.seen[name]
        return name

    def x(self) -> str:
        return self.pick()

    def with_dims(self, n: int) -> str:
        """Of so many dimensions, mostly."""
        return self.pick(lambda s: len(s.shape) == n) if self.rng.random() < 0.95 else self.pick()

    def vector(self) -> str:
        return self.with_dims(1)

    def matrix(self) -> str:
        return self.with_dims(2)

    def full_matrix(self) -> str:
        """Not of no rows: torch's second derivative of pdist ends the process there."""
        return self.pick(lambda s: len(s.shape) == 2 and 0 not in s.shape)

    def batch(self) -> str:
        return self.with_dims(3)

    def f(self) -> str:
        return self.pick(lambda s: "float" in s.dtype)

    def z(self) -> str:
        return self.pick(lambda s: "float" not in s.dtype)

    def small(self) -> str:
        """Integers that are the size of a result."""
        return self.pick(lambda s: "float" not in s.dtype and all(abs(v) < 100 for v in flattened(s.values)))

    def m(self) -> str:
        return self.pick(lambda s: s.dtype == "bool")

    def r(self) -> str:
        """With strides that both libraries agree on."""
        return self.pick(lambda s: not s.loose)

    def u(self) -> str:
        """Of numbers all different, so that each has one place in an order."""
        def different(s: Seen) -> bool:
            flat = flattened(s.values)
            return len(set(flat)) == len(flat) and all(v == v for v in flat)
        return self.pick(different)

    def c(self) -> str:
        """What any dtype holds."""
        return self.pick(lambda s: all(math.isfinite(v) and 0 <= v < 100 for v in flattened(s.values)))

    def cx(self) -> str:
        return self.pick(remember=False)

    def g(self) -> str:
        name = self.pick(lambda s: s.requires_grad) if self.rng.random() < 0.97 else self.pick()
        self.base = name
        return name

    def drawn(self) -> str:
        """The last one again."""
        return self.last[0]

    def g0(self) -> str:
        return self.base

    def leaf(self) -> str:
        self.base_leaf = self.pick(lambda s: s.requires_grad and s.leaf, remember=False)
        return self.base_leaf

    def leaf0(self) -> str:
        return self.base_leaf

    def any(self) -> str:
        return self.pick(remember=False)

    def one(self) -> str:
        return self.pick(lambda s: math.prod(s.shape) == 1) if self.rng.random() < 0.9 else self.pick()

    def num1(self) -> str:
        return self.pick(lambda s: math.prod(s.shape) == 1 and all(math.isfinite(v) and abs(v) < 1e9 for v in flattened(s.values)))

    def like(self) -> str:
        """Of the last one's shape, mostly."""
        shape = self.operand.shape
        if self.rng.random() < 0.9:
            same = self.rng.random() < 0.8
            return self.pick(lambda s: s.shape == shape and (not same or s.dtype == self.operand.dtype), remember=False)
        return self.pick(remember=False)

    def into(self) -> str:
        """Left open until the rest of the line is there."""
        return "OUT"

    def target(self, source: str) -> str:
        """To be written to: of the shape that the line comes to without it, mostly."""
        try:
            with self.world.library.no_grad():
                found = eval(source.replace(", out=OUT", ""), dict(self.world.names))
        except Exception:
            raise Unfit from None
        shape, dtype = tuple(found.shape), str(found.dtype).rsplit(".", 1)[-1]
        if self.rng.random() < 0.05:
            return self.pick()
        return self.pick(lambda s: s.shape == shape and (s.dtype == dtype or self.rng.random() < 0.2))

    def y(self) -> str:
        """A number, or what broadcasts with the last one."""
        return str(self.n()) if self.rng.random() < 0.25 else self.ty()

    def ty(self) -> str:
        roll, shape, same = self.rng.random(), self.operand.shape, self.rng.random() < 0.6
        if roll < 0.95:
            return self.pick(lambda s: (not same or s.dtype == self.operand.dtype) and all(a == b or 1 in (a, b) for a, b in zip(reversed(s.shape), reversed(shape))), remember=False)
        return self.pick(remember=False)

    def right(self) -> str:
        shape = self.operand.shape
        if self.rng.random() < 0.85 and shape:
            return self.pick(lambda s: len(s.shape) > 1 and s.shape[-2] == shape[-1] or s.shape == shape[-1:], remember=False)
        return self.pick(remember=False)

    # -- numbers

    def n(self) -> Any:
        return self.rng.choice([0, 1, 2, -1, 0.5, 2.0, -1.5, 3, 0.0, 1.0, True] + ([math.inf, math.nan, -0.0, 1e30] if self.special else [])).__repr__().replace("inf", "float('inf')").replace(
            "nan", "float('nan')")

    def num(self) -> Any:
        return self.rng.choice([0, 1, 2, -1, 0.5, 2.0])

    def power(self) -> Any:
        return self.rng.choice([0, 1, 2, 3, 0.5, -1, 2.0])

    def p(self) -> Any:
        return self.rng.choice([0.25, 0.5, 1.0, 2.0, 1, 2])

    def i(self) -> int:
        return self.rng.choice([-2, -1, 0, 1, 1, 2])

    def k(self) -> int:
        return self.rng.choice([0, 1, 1, 2, 2, 3])

    def p1(self) -> int:
        return self.rng.choice([1, 1, 2])

    def b(self) -> bool:
        return self.rng.random() < 0.5

    def offset(self) -> int:
        return self.rng.choice([-1, 0, 1])

    # -- shapes and places

    def of_dims(self, n: int) -> str:
        if self.rng.random() < 0.03:
            return str(self.rng.choice([-n - 1, n + 1, n]))
        self.dim = str(self.rng.randint(-n, n - 1) if n else self.rng.choice([0, -1]))
        return self.dim

    def d(self) -> str:
        return self.of_dims(len(self.operand.shape))

    def d0(self) -> str:
        return self.dim

    def d1(self) -> str:
        return self.of_dims(len(self.operand.shape) + 1)

    def at(self) -> int:
        return self.rng.choice([0, 0, 0, -1, 1])

    def perm(self) -> str:
        n = len(self.operand.shape)
        dims = self.rng.sample(range(n), n)
        if not n:
            raise Unfit
        return ", ".join(str(d - n * self.b()) for d in dims) + ("," if n == 1 else "")

    def size(self) -> Tuple[int, ...]:
        return self.rng.choice(self.shapes)

    def shape(self) -> Tuple[int, ...]:
        """Of as many elements as the last one has, mostly."""
        n = math.prod(self.operand.shape)
        options: List[Tuple[int, ...]] = [(n,), (1, n), (n, 1), (-1,), (1, -1)]
        options += [(k, n // k) for k in (2, 3, 4) if n % k == 0] + [(-1, k) for k in (2, 3) if n and n % k == 0] + [(n + 1,)] * (self.rng.random() < 0.1)
        return self.rng.choice(options + [()] * (n == 1))

    def bigger(self) -> Tuple[int, ...]:
        shape = tuple(self.rng.choice([2, 3, 1]) if s == 1 else s for s in self.operand.shape)
        shape = (self.rng.choice([1, 2]), *shape) if self.rng.random() < 0.4 else shape
        if room_of(shape) > LARGEST:
            raise Unfit
        return shape

    def strided(self) -> str:
        n = max(1, math.prod(self.operand.shape))
        options = [((1,), (1,), 0), ((n,), (1,), 0), ((), (), 0), ((1, n), (n, 1), 0), ((n // 2,), (2,), 0), ((n // 2,), (1,), n - n // 2), ((2, max(1, n // 2)), (max(1, n // 2), 1), 0), ((max(1, n // 2), 2), (1, max(1, n // 2)), 0),
                   ((max(1, n - 1), min(n, 2)), (1, 1), 0)]
        return ", ".join(map(str, self.rng.choice(options)))

    def index(self) -> str:
        parts: List[str] = []
        for _ in self.operand.shape[:self.rng.choice([1, 1, 2, 3])]:
            parts.append(self.rng.choice(["0", "-1", ":", ":", "1:", ":1", "::2", "None", "...", ":-1", "1:2", "1", "True", "0:0"]))
            if parts.count("...") > 1:
                parts[-1] = ":"
        return ", ".join(parts) or "..."

    def rows(self) -> str:
        """Indices along the last dimension drawn, each once."""
        shape = self.operand.shape
        try:
            n = shape[int(self.dim)]
        except IndexError:
            n = 0
        n = min(n, *shape) if shape and self.rng.random() < 0.3 else n
        chosen = self.rng.sample(range(n), self.rng.randint(0, n)) if n else []
        self.chosen = [i - n * self.b() for i in chosen] if self.rng.random() < 0.2 else chosen
        return f"torch.tensor({self.chosen}, dtype=torch.int64)"

    def rows0(self) -> str:
        return f"torch.arange({len(self.chosen)})"

    def places(self) -> str:
        """For gather and scatter: along a dimension, each place once."""
        shape = self.operand.shape
        try:
            n = shape[int(self.dim)] if shape else 1
        except IndexError:
            n = 0
        if not n:
            raise Unfit
        shift = self.rng.randrange(n)
        return f"torch.arange({math.prod(shape)}).view({shape}).mul(0).add(torch.arange({n}).add({shift}).remainder({n}).view({[-1 if i == int(self.dim) % max(len(shape), 1) else 1 for i in range(len(shape))]}))"

    def mask(self) -> str:
        if self.rng.random() < 0.5:
            return self.last[0] + self.rng.choice([" > 0", " == 1", " < 0", " != 0"])
        shape = self.operand.shape
        return self.pick(lambda s: s.dtype == "bool" and s.shape == shape[:len(s.shape)], remember=False)

    # -- words

    def dtype(self) -> str:
        return "torch." + self.rng.choice(self.dtypes)

    def T(self) -> str:
        return "torch." + self.rng.choice(FLOATS + INTEGERS)

    def cT(self) -> str:
        return "torch." + (self.rng.choice(FLOATS + INTEGERS + ["bool"]) if all(math.isfinite(v) and 0 <= v < 100 for v in flattened(self.operand.values)) else self.rng.choice(FLOATS))

    def Tf(self) -> str:
        return "torch." + self.rng.choice(FLOATS)

    def rounding(self) -> str:
        return self.rng.choice(["None", "'trunc'", "'floor'"])

    def reduction(self) -> str:
        return self.rng.choice(["'mean'", "'sum'", "'none'"])

    def tensor(self) -> str:
        """Quarters, which most of arithmetic leaves exact, and in some programs what numbers have at their ends."""
        rng, dtype, shape = self.rng, self.rng.choice(self.dtypes), self.size()
        if "float" in dtype:
            def number() -> Any:
                v = rng.choice([-8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 8, 10, 12]) / 4
                return rng.choice([v] * 4 + ["nan", "inf", "-inf", -0.0, 1e30 if dtype not in ("float16",) else 6e4, 1e-30, 0.0]) if self.special else v
        elif dtype == "bool":
            def number() -> Any:
                return rng.random() < 0.5
        else:
            def number() -> Any:
                return rng.randint(0, 7) if dtype == "uint8" else rng.randint(-5, 7)

        def nested(shape: Tuple[int, ...]) -> Any:
            return [nested(shape[1:]) for _ in range(shape[0])] if shape else number()
        values = str(nested(shape)).replace("'nan'", "float('nan')").replace("'-inf'", "float('-inf')").replace("'inf'", "float('inf')")
        if 0 in shape:
            return f"torch.zeros({shape}, dtype=torch.{dtype}{self.leafy(dtype)})"
        return f"torch.tensor({values}, dtype=torch.{dtype}{self.leafy(dtype)})"

    def leafy(self, dtype: str) -> str:
        return ", requires_grad=True" if "float" in dtype and self.rng.random() < 0.6 else ""


def flattened(values: Any) -> List[Any]:
    if not isinstance(values, list):
        return [values]
    return [v for row in values for v in flattened(row)]


def unsupported(message: str) -> bool:
    """torch has no kernel for a dtype: then there is nothing to compare with."""
    return "not implemented for" in message or "not yet implemented" in message or "NYI" in message


def draw(torch: Any, seed: int, index: int) -> Tuple[Program, List[Outcome]]:
    """Program `index` of `seed`, and what torch came to line by line."""
    rng = random.Random(f"{seed}/{index}")
    steps: List[Step] = []
    outcomes: List[Outcome] = []
    with warnings.catch_warnings(), World(torch) as world:
        warnings.simplefilter("ignore")
        writer = Writer(rng, world)
        length, context, left = rng.randint(5, 30), "", 0
        while len(steps) < length:
            if len(steps) < 2:
                template = "{tensor}"
            elif left == 0 and rng.random() < 0.12:
                context, left = rng.choice(CONTEXTS), rng.randint(1, 5)
                continue
            else:
                template = rng.choice(TEMPLATES[rng.choices(GROUPS, WEIGHTS)[0]][1])
            try:
                step = Step(writer.fill(template), context if left else "")
            except Unfit:
                continue
            left = max(0, left - 1)
            outcome = world.run(step)
            if unsupported(outcome.message) or any(room_of(s.shape) > LARGEST for s in outcome.tensors().values()):
                if re.match(r"v\d+ = |v\d+, ", step.source) and not re.search(r"backward|grad|_\(", step.source):
                    for name in re.findall(r"v\d+", step.source.split(" = ")[0]):
                        world.names.pop(name, None)
                    continue
                break  # what it has left undone is unknown
            steps.append(step)
            outcomes.append(outcome)
            writer.seen = outcome.seen
    return Program(steps, seed, index), outcomes
