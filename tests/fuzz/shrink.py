"""Makes a program that differs small: fewer lines, plainer ones, as long as it differs in the same way."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Callable, Iterator, List, Optional

from .program import Program, Step
from .running import Difference, check

TRIES = 400


def plainer(source: str) -> Iterator[str]:
    """The same line with one thing of it simpler."""
    name, sign, right = source.partition(" = ")
    if sign and re.match(r"v\d+$", name):
        for v in dict.fromkeys(re.findall(r"\bv\d+\b", right)):
            for simple in (v, f"{v}.clone()", f"{v} * 2"):
                if right != simple and len(simple) <= len(right):
                    yield f"{name} = {simple}"
        for simple in ("torch.tensor(1.0)", "torch.tensor(1.0, requires_grad=True)", "torch.ones(2)", "torch.ones(2, requires_grad=True)"):
            if right.startswith("torch.tensor(") and len(simple) < len(right):
                yield f"{name} = {simple}"
    if source.startswith("v") and "[" in source and "torch.tensor([" in source:
        inner = re.search(r"torch\.tensor\((\[.*\]),", source)
        if inner:
            try:
                values = eval(inner.group(1), {"float": float})
            except Exception:
                values = None
            if isinstance(values, list) and values:
                for v in ([values[:1], values[0]] if len(values) > 1 else [values[0]]):
                    yield source.replace(inner.group(1), repr(v).replace("nan", "float('nan')").replace("inf", "float('inf')"))
    for extra in re.findall(r", (?:requires_grad=True|dtype=torch\.\w+|keepdim=\w+|alpha=[^,)]+|value=[^,)]+|retain_graph=True|allow_unused=True)", source):
        yield source.replace(extra, "", 1)
    for number in re.findall(r"(?<![\w.])-?\d+\.\d+(?![\w.])", source):
        if number not in ("1.0", "0.5"):
            yield source.replace(number, "1.0", 1)


def shrunk(d: Difference, torch: Any, ampc: Any, accepted: Callable[[Difference], Any] = lambda d: None) -> Difference:
    best, left, refused = d, TRIES, set()

    def attempt(steps: List[Step]) -> Optional[Difference]:
        nonlocal left
        if left <= 0 or str(steps) in refused:
            return None
        left -= 1
        refused.add(str(steps))
        try:
            found = check(Program(steps, d.program.seed, d.program.index), torch, ampc)
        except Exception:
            return None
        if found is None or found.key != d.key or accepted(found):
            return None
        return replace(found, program=Program(found.program.steps[:found.at + 1], d.program.seed, d.program.index))

    best = attempt(d.program.steps[:d.at + 1]) or best
    changed = True
    while changed and left > 0:
        changed = False
        size = max(1, len(best.program.steps) // 2)
        while size:
            start = 0
            while start < len(best.program.steps):
                steps = best.program.steps
                found = attempt(steps[:start] + steps[start + size:])
                if found is not None:
                    best, changed = found, True
                else:
                    start += size
            size //= 2
        for i in range(len(best.program.steps)):
            alias = re.fullmatch(r"(v\d+) = (v\d+)", best.program.steps[i].source) if i < len(best.program.steps) else None
            if alias:
                steps = best.program.steps
                found = attempt(steps[:i] + [Step(re.sub(rf"\b{alias.group(1)}\b", alias.group(2), s.source), s.context) for s in steps[i + 1:]])
                if found is not None:
                    best, changed = found, True
            again = True
            while again and i < len(best.program.steps):
                again = False
                steps, step = best.program.steps, best.program.steps[i]
                for s in [Step(step.source)] * bool(step.context) + [Step(text, step.context) for text in plainer(step.source)]:
                    found = attempt(steps[:i] + [s] + steps[i + 1:])
                    if found is not None:
                        best, changed, again = found, True, True
                        break
    return best
