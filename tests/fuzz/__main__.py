"""python -m fuzz --programs 1000 --seed 1: draws programs, runs each beside torch, prints what differs, shrunk.

Under the address sanitizer: --save programs.json here, then, with a build that has CFLAGS=-fsanitize=address,
LD_PRELOAD=$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 python -m fuzz --replay programs.json."""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import sys
import time
from typing import Any, Dict, Iterator, List, Optional

from .drawing import draw
from .jobs import load, results
from .program import Step, script
from .running import World


def progress(of: Iterator[Any], total: int) -> Iterator[Any]:
    try:
        from tqdm import tqdm
    except ImportError:
        return of
    return iter(tqdm(of, total=total, unit="program", smoothing=0, disable=None))


def main(argv: Optional[List[str]] = None) -> int:
    from conftest import SIMULATORS, build_simulator

    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=3000)
    parser.add_argument("--seed", type=int, help="drawn and printed if not given")
    parser.add_argument("--first", type=int, default=0, help="the first program's index")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", choices=["cpu", *SIMULATORS, "cuda"], default="cpu", help="where ampc's tensors are")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--show", action="store_true", help="print the programs themselves")
    parser.add_argument("--allow", type=int, default=0, help="so many unexplained differences are told, and are no failure")
    parser.add_argument("--json", help="a file for what differs, a line each")
    parser.add_argument("--save", help="write the programs to a file, for --replay")
    parser.add_argument("--replay", help="run the programs of a file in ampc alone: for a process that torch cannot be in")
    args = parser.parse_args(argv)
    seed = time.time_ns() % 1_000_000 if args.seed is None else args.seed
    if args.replay:
        return replay(args.replay)
    if args.device in SIMULATORS:
        os.environ["AMPC_CUDA_LIBS"] = str(build_simulator(args.device))
    print(f"{args.programs} programs of seed {seed}", flush=True)
    if args.show or args.save:
        return write(args, seed)
    counts: Dict[str, int] = collections.Counter()
    known: Dict[str, int] = collections.Counter()
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(open(args.json, "a")) if args.json else None
        for _, kind, what in progress(results(seed, args.first, args.programs, args.jobs, args.device, not args.no_shrink), args.programs):
            counts[kind] += 1
            if kind == "known":
                known[what] += 1
            elif kind == "differs":
                if out:
                    print(json.dumps(what), file=out, flush=True)
                else:
                    print(f"\n-- program {what['index']} of seed {seed}: {what['text']}\n{what['script']}", flush=True)
    for reason, n in sorted(known.items(), key=lambda item: -item[1]):
        print(f"{n:7} {reason}")
    print(f"{sum(counts.values())} programs: {counts['same']} the same, {counts['known']} with a known difference, {counts['differs']} unexplained", flush=True)
    return 1 if counts["differs"] > args.allow else 0


def write(args: Any, seed: int) -> int:
    torch, _ = load()
    with open(args.save, "w") if args.save else contextlib.nullcontext(sys.stdout) as out:
        for index in range(args.first, args.first + args.programs):
            program, _ = draw(torch, seed, index)
            print(json.dumps([[s.source, s.context] for s in program.steps]) if args.save else script(program) + "\n", file=out)
    return 0


def replay(path: str) -> int:
    import warnings

    import ampc

    warnings.simplefilter("ignore")
    with open(path) as file:
        programs = [json.loads(line) for line in file]
    for program in programs:
        with World(ampc) as world:
            for source, context in program:
                world.run(Step(source, context))
    print(f"{len(programs)} programs ran")
    return 0


if __name__ == "__main__":
    sys.exit(main())
