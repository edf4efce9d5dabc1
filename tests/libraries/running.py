"""Runs the scripts beside this file under torch and by `ampc run`, and compares what they print."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, NamedTuple

HERE = Path(__file__).resolve().parent
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
SEEDS = (0, 1, 2)
NUDGES = 2
FLOOR = 16  # roundings that a loss itself, a sum, may differ by where a nudge changes nothing
# How often the largest difference between nudged runs of torch. A nudge is one rounding of each first value; another order of additions is one
# in each operator of each step. And two nudges are few: the larger of two may be small by luck.
TIMES = 20


class Script(NamedTuple):
    """One function of a file with `@script`."""

    file: str
    name: str
    package: str
    what: str
    rounding: str = "float32"
    of: tuple = ()

    @property
    def label(self) -> str:
        return f"{self.file}:{self.name}"


def scripts() -> List[Script]:
    """All of them, read by syntax: their libraries are not imported."""
    found = []
    for path in sorted(HERE.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            for call in getattr(node, "decorator_list", []):
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "script":
                    given = {k.arg: ast.literal_eval(k.value) for k in call.keywords}
                    found.append(Script(path.stem, node.name, *map(ast.literal_eval, call.args), **given))
    return found


class Failed(RuntimeError):
    """The last line of what a script wrote to stderr."""


def run(script: Script, library: str, python: str, packages: str, *more: str, seeds=SEEDS, seconds: float = 600) -> Dict[str, List[List[float]]]:
    """{seed: the runs' losses}: one run, and as many more as ``--nudges`` says. ``python`` is the environment's; ``packages`` is the
    folder that holds torch or ampc."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg", "PYTHONWARNINGS": "ignore"}
    env.pop("PYTHONPATH", None)
    env["LD_LIBRARY_PATH"] = str(Path(sys.prefix) / "lib")  # where mpi4py, which some packages look for, finds its MPI
    command = [python, str(HERE / "under.py"), library, packages, str(HERE / f"{script.file}.py"), script.name, *map(str, seeds), *more]
    with tempfile.TemporaryDirectory() as scratch:  # where libraries leave their logs
        try:
            done = subprocess.run(command, capture_output=True, text=True, env={**env, "TMPDIR": scratch}, cwd=HERE, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"took longer than {seconds:.0f} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip() and not line.startswith("Exception ignored")]
        raise Failed("; ".join(lines[-2:])[-400:] if lines and lines[-1].startswith("ampc:") else (lines or ["no message"])[-1][-400:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def theirs(script: Script, python: str, packages: str, **settings) -> Dict[str, List[List[float]]]:
    """torch's losses, plain and nudged."""
    return run(script, "torch", python, packages, "--nudge", str(ROUNDING[script.rounding]), "--nudges", str(NUDGES), **settings)


def bounds(runs: List[List[float]]) -> List[float]:
    """How far another library's losses may lie from torch's: at each step TIMES times what the nudges have changed so far."""
    plain, largest, found = runs[0], 0.0, []
    for i, value in enumerate(plain):
        size = max(abs(value), 1e-3)
        largest = max([largest, *(abs(nudged[i] - value) / size for nudged in runs[1:])])
        found.append((TIMES * largest + FLOOR * ROUNDING["float32"]) * size)
    return found


def beyond(ours: List[float], runs: List[List[float]]) -> str:
    """The first loss that lies beyond its bound, in words; empty if none does."""
    plain = runs[0]
    if len(ours) != len(plain):
        return f"{len(ours)} numbers, and torch has {len(plain)}"
    for i, (a, b, bound) in enumerate(zip(ours, plain, bounds(runs))):
        if not abs(a - b) <= bound and not (a != a and b != b):
            return f"number {i + 1} of {len(plain)} is {a:.8g}, torch's {b:.8g}: they differ by {abs(a - b):.1e}, and rounding explains {bound:.1e}"
    return ""


def compare(script: Script, python: str, torch: str, ampc: str, kept: Dict[str, List[List[float]]] | None = None, seeds=SEEDS) -> dict:
    """One script under both: {"seconds": ..., "seeds": {seed: {"ampc": [...], "torch": [[...], ...]}}} or {"failed": why}. With ``kept``,
    torch's losses of an earlier run, torch does not run."""
    begin = time.perf_counter()
    try:
        other = kept or theirs(script, python, torch, seeds=seeds)
    except Failed as error:
        return {"failed": f"torch: {error}"}
    middle = time.perf_counter()
    try:
        ours = run(script, "ampc", python, ampc, seeds=seeds)
    except Failed as error:
        return {"failed": str(error)}
    took = [round(middle - begin, 1), round(time.perf_counter() - middle, 1)]
    return {"seconds": took, "seeds": {s: {"ampc": ours[s][0], "torch": other[s]} for s in ours}}


def in_float64(script: Script, python: str, torch: str, ampc: str) -> Dict[str, Dict[str, List[float]]]:
    """{seed: {library: losses}} of a script that can compute in float64."""
    both = {library: run(script, library, python, where, "--float64") for library, where in (("ampc", ampc), ("torch", torch))}
    return {seed: {library: runs[seed][0] for library, runs in both.items()} for seed in both["torch"]}


def verdict(result: dict) -> str:
    """Empty if all seeds agree."""
    if "failed" in result:
        return result["failed"]
    said = {seed: beyond(r["ampc"], r["torch"]) for seed, r in result["seeds"].items()}
    return "; ".join(f"seed {seed}: {text}" for seed, text in said.items() if text)


# -- what is kept: how far losses lie apart, not the losses --------------------------------------------------------


def difference(a: List[float], b: List[float]) -> float:
    """The largest relative difference of two lists of losses, in two digits."""
    apart = (0.0 if x != x and y != y else abs(x - y) / max(abs(y), 1e-3) for x, y in zip(a, b))
    return float(f"{max(apart, default=0.0):.1e}")


def digest(result: dict) -> dict:
    """What is kept of compare's result, for each seed: how far the first loss and all lie from torch's, how far torch's nudged runs lie from its
    plain one, and the largest part of its bound that a difference takes. In float64, how far both libraries' losses there lie apart, and how far
    their losses in float32 lie from torch's there."""
    if "failed" in result:
        return result
    kept: dict = {"seconds": result["seconds"], "disagrees": verdict(result), "seeds": {}}
    for seed, r in result["seeds"].items():
        ours, plain, *nudged = r["ampc"], *r["torch"]
        of_bound = max((abs(a - b) / bound for a, b, bound in zip(ours, plain, bounds(r["torch"])) if a == a or b == b), default=0.0)
        kept["seeds"][seed] = {"numbers": len(plain), "first": difference(ours[:1], plain[:1]), "all": difference(ours, plain),
                               "alone": max(difference(n, plain) for n in nudged), "of_bound": float(f"{of_bound:.2g}")}
    for seed, r in result.get("float64", {}).items():
        single, exact = result["seeds"][seed], r["torch"]
        kept.setdefault("float64", {})[seed] = [difference(r["ampc"], exact), difference(single["ampc"], exact), difference(single["torch"][0], exact)]
    return kept
