"""python -m cuda_ptx rows.ptx FOLDER: the kernels of a PTX file as C++ files that include runtime.h, each with a few kernels and what they
call. A file whose text is the same is left alone, so that it is not compiled again."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Iterator, List

from .instructions import Translator, cpp
from .parse import Array, Function, Module, NotUnderstood, parse

STATEMENTS = 8000  # of a C++ file, its last kernel aside: enough that it takes longer to compile than its headers


def callees(module: Module, function: Function) -> List[str]:
    """All that a function calls, directly or not."""
    found: List[str] = []
    left = [function.name]
    while left:
        for name in module.functions[left.pop()].calls():
            if name in module.functions and name not in found:
                found.append(name)
                left.append(name)
    return found


def groups(module: Module) -> Iterator[List[Function]]:
    """The kernels, in order, a few at a time."""
    group: List[Function] = []
    for kernel in (f for f in module.functions.values() if f.is_kernel):
        group.append(kernel)
        if sum(len(f.body) for f in group) > STATEMENTS:
            yield group
            group = []
    if group:
        yield group


def signature(function: Function) -> str:
    return f"void {cpp(function.name)}({', '.join(f'u8 *{cpp(p.name)}' for p in function.parameters)})"


def definition(module: Module, function: Function) -> str:
    """Beyond its last statement nothing is defined: nvcc ends a function so where it calls what no GPU has."""
    translator = Translator(module, function)
    lines = [translator.statement(statement) for statement in function.body]
    return "\n".join([signature(function) + " {", "bool carry = false;", *lines, "no_return();", "}"])


def entry(kernel: Function) -> str:
    if len(kernel.parameters) != 1:
        raise NotUnderstood(f"{kernel.name} has {len(kernel.parameters)} parameters instead of one struct")
    return f"PTX_KERNEL({kernel.name}, {kernel.parameters[0].size})"


def constant(array: Array) -> str:
    return f"alignas({array.align}) const u8 {cpp(array.name)}[] = {{{array.values}}};"


def source(module: Module, kernels: List[Function]) -> str:
    names = {name: None for kernel in kernels for name in callees(module, kernel)}
    functions = [module.functions[name] for name in names] + kernels
    return "\n".join(['#include "runtime.h"', "namespace {", *map(constant, module.arrays.values()), *(signature(f) + ";" for f in functions),
                      *(definition(module, f) for f in functions), "}", *map(entry, kernels), ""])


def write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def translate(ptx: Path, folder: Path) -> None:
    module = parse(ptx.read_text())
    texts = {f"{ptx.stem}_{i}.cpp": source(module, kernels) for i, kernels in enumerate(groups(module))}
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob(f"{ptx.stem}_*.cpp"):
        if path.name not in texts and re.fullmatch(r"\d+", path.stem[len(ptx.stem) + 1:]):  # another file's name may begin so
            path.unlink()
    for name, text in texts.items():
        write(folder / name, text)


if __name__ == "__main__":
    try:
        translate(Path(sys.argv[1]), Path(sys.argv[2]))
    except NotUnderstood as e:
        sys.exit(f"{sys.argv[1]}: not translated: {e}")
