"""python -m opinfo [--modules | --optimizers] [--only NAME] [--all] [--json FILE] [--part I/N]: torch's samples, replayed.

Prints what differs without a reason, the first difference of each kind of an entry, and before a value which element of the result it is: `[3 of 400]`.
The status is 1 where there is a difference, and 2 where no entry has the name."""

import argparse
import collections
import dataclasses
import difflib
import json
import sys
import time
from typing import Any, Callable, Counter, Iterator, Set, Tuple

import ampc

from .known import explained
from .modules import modules
from .optimizers import optimizers
from .running import operators

parser = argparse.ArgumentParser(description=__doc__)
which = parser.add_mutually_exclusive_group()
which.add_argument("--modules", action="store_true", help="the samples of modules")
which.add_argument("--optimizers", action="store_true", help="the samples of optimizers")
parser.add_argument("--only", action="append", help="torch's name of an operator; may be repeated")
parser.add_argument("--all", action="store_true", help="every difference, not the first of each kind")
parser.add_argument("--most", type=int, default=0, help="so many samples of each dtype; 0: all")
parser.add_argument("--after", help="begin behind this entry")
parser.add_argument("--json", help="a file for the differences, a line each")
parser.add_argument("--part", default="0/1", help="I/N: every N-th entry of the database")
parser.add_argument("--gpu", action="store_true", help="ampc's tensors on a GPU; AMPC_CUDA_LIBS names the simulator's folder")
options = parser.parse_args()
if options.gpu:
    ampc.set_default_device("cuda")
part, parts = map(int, options.part.split("/"))
if not 0 <= part < parts:
    parser.error(f"--part: expected I/N with 0 <= I < N, got {options.part}")
out = open(options.json, "w") if options.json else None  # noqa: SIM115
kinds: Counter[str] = collections.Counter()
checks = 0
begun = options.after is None
entries: Callable[[int], Iterator[Any]] = modules if options.modules else optimizers if options.optimizers else operators
names = {entry.op.name for entry in entries(1)} if options.only else set()
for name in options.only or []:
    if name not in names:
        parser.error(f"--only {name}: torch has no samples of that name; near ones: {', '.join(difflib.get_close_matches(name, names)) or 'none'}")
for i, operator in enumerate(entries(options.most)):
    if not begun:
        begun = operator.name == options.after
        continue
    if options.only and operator.op.name not in options.only or i % parts != part:
        continue
    if operator.function is None:
        print(f"{operator.name}: absent")
        continue
    begin, n = time.time(), 0
    seen: Set[Tuple[str, ...]] = set()
    for d in operator.check():
        if explained(d):
            continue
        n += 1
        kinds[f"{d.way.split(',')[0]}: {d.kind}"] += 1
        key = (d.way, d.kind, d.ampc[:60] if d.kind == "exception" else "")
        if key in seen and not options.all:
            continue
        seen.add(key)
        if out:
            print(json.dumps(dataclasses.asdict(d)), file=out, flush=True)
        print(d)
    checks += operator.count
    print(f"{operator.name}: {operator.count} checks, {n} differ, {time.time() - begin:.1f} s", flush=True)
print(f"{checks} checks, {sum(kinds.values())} differ: {dict(kinds)}", file=sys.stderr)
sys.exit(1 if kinds else 0)
