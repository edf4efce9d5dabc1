"""Trains the libraries' scripts under torch and ampc and says which differ.

    python -m libraries --python ENVIRONMENT/bin/python                 # a third of them, drawn; prints the seed of the draw
    python -m libraries --python ... --draw 7                           # the same third again
    python -m libraries --python ... --all                              # all of them
    python -m libraries --python ... --only gpt2 --only peft            # some of them, by name, file or package
    python -m libraries --python ... --all --save FILE.json             # keeps how far they lie apart, which tools/compatibility.py reads

The environment holds the packages of requirements.txt (`pip install --no-deps -r requirements.txt`) and neither torch nor ampc. Those are
the ones of the Python that runs this."""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from . import running


def folder_of(library: str) -> str:
    """Where a library is installed."""
    spec = importlib.util.find_spec(library)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{library} is not installed beside {sys.executable}")
    return str(Path(spec.origin).resolve().parent.parent)


def drawn(args: argparse.Namespace) -> list:
    scripts = running.scripts()
    if args.only:
        return [s for s in scripts if {s.name, s.file, s.package, s.label} & set(args.only)]
    if args.all:
        return scripts
    draw = args.draw if args.draw is not None else random.SystemRandom().randrange(10**6)
    chosen = random.Random(draw).sample(scripts, -(-len(scripts) // 3))
    print(f"--draw {draw}: {' '.join(s.label for s in sorted(chosen))}", flush=True)
    return chosen


def versions(python: str) -> dict:
    """Of the packages in the environment."""
    told = subprocess.run([python, "-c", "import importlib.metadata as m, json; print(json.dumps({d.name.lower().replace('_', '-'): d.version for d in m.distributions()}))"],
                          capture_output=True, text=True, check=True)
    return json.loads(told.stdout)


def save(path: Path, results: dict, python: str) -> None:
    """Keeps what was found, and what an earlier run found of other scripts."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=running.HERE).stdout.strip()
    installed = versions(python)
    rows = json.loads(path.read_text())["scripts"] if path.exists() else {}
    today = time.strftime("%Y-%m-%d", time.gmtime())
    for script, result in results.items():
        rows[script.label] = {**script._asdict(), "version": installed.get(script.package.lower().replace("_", "-"), ""), "date": today, "commit": commit, **running.digest(result)}
    known = {s.label for s in running.scripts()}
    lines = ",\n".join(f"{json.dumps(label)}: {json.dumps(rows[label])}" for label in sorted(rows) if label in known)
    path.write_text(f'{{"torch": "{importlib.metadata.version("torch").split("+")[0]}",\n"scripts": {{\n{lines}\n}}}}\n')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", required=True, type=os.path.abspath, help="of the environment with the packages")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", action="append")
    parser.add_argument("--draw", type=int, help="the seed of the third that is drawn")
    parser.add_argument("--seeds", type=int, default=len(running.SEEDS), help="how many of the seeds")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no further script after so long")
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    torch, ampc = folder_of("torch"), folder_of("ampc")
    results, begin, bad = {}, time.monotonic(), 0
    for script in drawn(args):
        if time.monotonic() - begin > 60 * args.minutes:
            print(f"{script.label:<44} left out: {args.minutes:g} minutes are over")
            continue
        result = running.compare(script, args.python, torch, ampc, seeds=running.SEEDS[:args.seeds])
        text = running.verdict(result)
        if args.save and "float64" in script.of and not text:
            result["float64"] = running.in_float64(script, args.python, torch, ampc)
        bad += bool(text)
        results[script] = result
        print(f"{script.label:<44} {text or 'agrees'}  {result.get('seconds', '')}", flush=True)
    if args.save:
        save(args.save, results, args.python)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
