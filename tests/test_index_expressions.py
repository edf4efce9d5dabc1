"""Indices drawn at random, beside torch: what they read, whether that is a view, what they write, and the gradients of both.

AMPC_TEST_SEED=S repeats a run; the message of a failure has the seed and the case."""

import os
import random
from typing import Any, List, Tuple

import numpy as np
import pytest
from references import DRAWN
from where import ON_GPU, SIMULATED

import ampc

torch = pytest.importorskip("torch")
BATCHES, CASES = 10, int(os.environ.get("AMPC_EXAMPLES", 100))


class Expression:
    """A shape and an index for it, as Python source, most of the time a valid one."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.shape = [rng.choice((1, 2, 2, 3, 3, 4, 4) if rng.random() < 0.97 else (0,)) for _ in range(rng.choice((0, 1, 2, 2, 3, 3, 4)))]
        self.length = rng.choice((1, 2, 3))  # of arrays, so that they broadcast
        self.source = self.whole()

    def whole(self) -> str:
        items, dim = [], 0
        dots = self.rng.random() < 0.3
        while len(items) < 6 and (dim < len(self.shape) or self.rng.random() < 0.1) and self.rng.random() < 0.9:
            if dots and self.rng.random() < 0.3:
                items.append("...")
                dots = self.rng.random() < 0.05
                dim = min(max(dim, self.rng.randint(0, len(self.shape))), len(self.shape))
                continue
            item, used = self.item(dim)
            items.append(item)
            dim += used
            if used == 2 and item.startswith("np"):
                break  # torch counts one dimension for it, and loses an index that is one too many
        if len(items) == 1 and self.rng.random() < 0.7:
            return items[0]
        if self.rng.random() < 0.15:
            return f"[{', '.join(items)}]"
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"

    def number(self, n: int) -> int:
        if n == 0 or self.rng.random() < 0.01:
            return self.rng.randint(-n - 2, n + 2)
        return self.rng.randint(-n, n - 1)

    def numbers(self, n: int) -> List[int]:
        return [self.number(n) for _ in range(1 if self.rng.random() < 0.1 else self.length)]

    def bools(self, *shape: int) -> Any:
        return np.array([self.rng.random() < 0.5 for _ in range(int(np.prod(shape)))], bool).reshape(shape).tolist()

    def item(self, dim: int) -> Tuple[str, int]:
        n = self.shape[dim] if dim < len(self.shape) else 1
        kind = self.rng.choice((self.plain, self.plain, self.plain, self.sequence, self.tensor, self.mask))
        return kind(n, dim)

    def plain(self, n: int, dim: int) -> Tuple[str, int]:
        i = self.number(n)
        first, last = (self.rng.choice(("", self.rng.randint(-n - 1, n + 1))) for _ in range(2))
        some = f"slice({first if first != '' else None}, {last if last != '' else None}, {self.rng.choice((None, 1, 2, 3))})"
        return self.rng.choice(((str(i), 1), (f"np.int64({i})", 1), (some, 1), (some, 1), ("slice(None)", 1), ("slice(None)", 1), ("None", 0), ("None", 0),
                                (str(self.rng.random() < 0.7), 0)))

    def sequence(self, n: int, dim: int) -> Tuple[str, int]:
        many = self.numbers(n)
        nested = [self.numbers(n) for _ in range(self.rng.choice((1, 2)))]
        return self.rng.choice((f"{many}", f"{many}", f"{tuple(many)}", f"np.array({many})", f"np.array({many}, np.int16)", f"{nested}", f"[{tuple(many)}]", "[]", "()",
                                f"range({self.rng.randint(0, n)})", f"[T.tensor({many[0]}), {many[0]}]", f"np.array({many[0]})", f"{[float(i) for i in many]}")), 1

    def tensor(self, n: int, dim: int) -> Tuple[str, int]:
        many = self.numbers(n)
        dtype = self.rng.choice(("int64", "int64", "int64", "int32", "int32", "int8" if self.rng.random() < 0.3 else "int64"))
        values = self.rng.choice((many, many, [many], many[0], [[i] for i in many], many[0]))
        return f"T.tensor({values}, dtype=T.{dtype})", 1

    def mask(self, n: int, dim: int) -> Tuple[str, int]:
        more = self.shape[dim + 1] if dim + 1 < len(self.shape) else 1
        wrong = 1 if self.rng.random() < 0.02 else 0
        flat, deep = self.bools(n + wrong), self.bools(n, more + wrong)
        return self.rng.choice(((f"T.tensor({flat}, dtype=T.bool)", 1), (f"{flat}", 1), (f"np.array({flat}, bool)", 1), (f"T.tensor({self.bools()})", 0),
                                (f"T.tensor({deep}, dtype=T.bool).reshape({n}, {more + wrong})", 2), (f"np.array({deep}, bool)", 2)))


def made(lib: Any, shape: List[int], layout: str) -> Any:
    x = lib.arange(float(np.prod(shape)), dtype=lib.float64).reshape(shape)
    if layout == "turned" and shape:
        return x.reshape(shape[::-1]).permute(*range(len(shape))[::-1])
    return lib.stack([x, -x], -1)[..., 0] if layout == "strided" else x


def weights(lib: Any, like: Any) -> Any:
    return lib.arange(1.0, like.numel() + 1, dtype=lib.float64).reshape(list(like.shape))


def read(lib: Any, x: Any, index: Any) -> Tuple[Any, ...]:
    """The values, their strides where they are a view, and x after they were written to."""
    y = x[index]
    before = y.tolist()
    old = x.tolist()
    y.mul_(3).sub_(1)
    return tuple(y.shape), before, x.tolist(), y.stride() if x.tolist() != old else None


def read_gradient(lib: Any, x: Any, index: Any) -> Tuple[Any, ...]:
    x = x.detach().requires_grad_()
    y = x[index]
    (y * y * weights(lib, y)).sum().backward()
    return y.tolist(), x.grad.tolist()


def write(lib: Any, x: Any, index: Any, value: Any) -> Tuple[Any, ...]:
    x[index] = value
    return (x.tolist(),)


def write_gradient(lib: Any, x: Any, index: Any, value: Any) -> Tuple[Any, ...]:
    leaf = x.detach().requires_grad_()
    y = leaf.clone()
    if isinstance(value, lib.Tensor) and value.is_floating_point():
        value.requires_grad_()
    y[index] = value
    (y * y * weights(lib, y)).sum().backward()
    return y.tolist(), leaf.grad.tolist(), value.grad.tolist() if isinstance(value, lib.Tensor) and value.requires_grad else None


def value_for(rng: random.Random, shape: List[int], source: str) -> str:
    """Source of what is written: it broadcasts to the indexed part, nearly always."""
    try:
        part = list(torch.zeros(shape)[eval(source, {"T": torch, "np": np})].shape)
    except Exception:
        part = [2]
    part = [1 if rng.random() < 0.2 else n for n in part][rng.choice((0, 0, 0, 1, 2)):]
    part = [1] * rng.choice((0, 0, 0, 1, 2)) + part
    if rng.random() < 0.03:
        part = [*part, 5]
    n = int(np.prod(part))
    dtype = rng.choice(("float64",) * 8 + ("float32", "int64"))
    return rng.choice(("-7", "2.5", "True", *[f"T.arange(100, {100 + n}, dtype=T.{dtype}).reshape({part})"] * 5))


def outcome(lib: Any, run: Any, shape: List[int], layout: str, source: str, value: Any) -> Any:
    names = {"T": lib, "np": np}
    given = () if value is None else (eval(value, names),)
    index = eval(source, names)
    try:
        return run(lib, made(lib, shape, layout), index, *given)
    except Exception as error:
        return type(error), str(error)


def writes_twice(shape: List[int], source: str) -> bool:
    """Whether an index names an element more than once: several threads of a real GPU write it, and any of them last."""
    try:
        names = torch.arange(float(np.prod(shape))).reshape(shape)[eval(source, {"T": torch, "np": np})]
    except Exception:
        return False
    return len(names.unique()) < names.numel()


def agree(theirs: Any, ours: Any) -> bool:
    if isinstance(theirs[0], type):
        several = "tensors used as indices" in str(ours[1])  # torch looks at their dtypes last, where another index may be wrong, too
        if not isinstance(ours[0], type):
            return "The shape of the mask [0]" in str(theirs[1])  # by the array API it chooses nothing, of a dimension of any size
        return several or issubclass(ours[0], theirs[0])
    return bool(theirs == ours)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("batch", range(BATCHES))
def test_index_expressions(batch):
    rng = random.Random(f"{DRAWN} {batch}")
    differ = []
    for _ in range(CASES):
        drawn = Expression(rng)
        run = rng.choice((read, read_gradient, write, write_gradient))
        value = value_for(rng, drawn.shape, drawn.source) if run in (write, write_gradient) else None
        case = (run, drawn.shape, rng.choice(("plain", "plain", "turned", "strided")), drawn.source, value)
        if ON_GPU and not SIMULATED and value is not None and writes_twice(drawn.shape, drawn.source):
            continue
        theirs, ours = (outcome(lib, *case) for lib in (torch, ampc))
        if not agree(theirs, ours):
            differ.append(f"{run.__name__} {case[1:]}\n  torch {theirs}\n  ampc  {ours}")
    assert not differ, f"AMPC_TEST_SEED={DRAWN}, batch {batch}, {len(differ)} differ:\n" + "\n".join(differ[:20])
