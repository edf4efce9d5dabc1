"""A program: lines, some of them inside `with`, and the script that it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import List

from .operations import HELPERS

MODULES = ["copy", "io", "pickle", "threading"]


@dataclass(frozen=True)
class Step:
    source: str
    context: str = ""  # what stands behind `with`; neighbours of one context share the block

    def __str__(self) -> str:
        return f"with {self.context}: {self.source}" if self.context else self.source


@dataclass(frozen=True)
class Program:
    steps: List[Step]
    seed: int = 0
    index: int = 0


def helpers(source: str) -> List[str]:
    """Names of the helpers that a line needs, those first that others need."""
    found: List[str] = []
    for name in re.findall(r"\b[A-Za-z_]+\b", source):
        if name in HELPERS and name not in found:
            found += [n for n in helpers(HELPERS[name].split("\n", 1)[-1].replace(name, "")) if n not in found] + [name]
    return found


def script(program: Program, library: str = "torch") -> str:
    """The program to run by itself. Lines that raise are caught, as they are where two libraries are compared."""
    lines: List[str] = []
    text = "\n".join(str(s) for s in program.steps)
    needed = [n for s in program.steps for n in helpers(s.source)]
    lines += [f"import {m}" for m in MODULES if re.search(rf"\b{m}\.", text + "".join(HELPERS[n] for n in needed))]
    lines += [f"import {library}" if library == "torch" else f"import {library} as torch"]
    lines += ["import torch.utils.checkpoint"] * ("checkpoint" in text and library == "torch")
    lines += [HELPERS[n] for n in dict.fromkeys(needed)]
    context = ""
    for s in program.steps:
        if s.context and s.context != context:
            lines.append(f"with {s.context}:")
        context = s.context
        lines.append("    " * bool(context) + s.source)
    return "\n".join(lines)
