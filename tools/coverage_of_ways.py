"""Whether the tests of the ways through the kernels run the code behind each: builds the core with gcov's counters in build/coverage, runs
tests/test_machines.py on it, and looks at the line where each way of csrc/base/ways.def is entered.

    python tools/coverage_of_ways.py   # exit status 1 when a line was not executed whose instruction set this CPU has

A way that a row of a table names (a micro-kernel) is entered where its function runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterator, Tuple

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "coverage"


def build() -> None:
    """The package with an instrumented core, in BUILD/lib, its counters at zero."""
    for counted in BUILD.rglob("*.gcda"):
        counted.unlink()
    env = {**os.environ, "AMPC_BUILD": "coverage", "AMPC_CUDA": "0"}
    subprocess.run([sys.executable, "setup.py", "--quiet", "build"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env=env)


def test() -> None:
    command = [sys.executable, "-m", "pytest", "-c", "../pyproject.toml", "--rootdir", ".", "-q", "--no-header", "-m", "not slow", "test_machines.py"]
    subprocess.run(command, cwd=ROOT / "tests", check=True, env={**os.environ, "PYTHONPATH": str(BUILD / "lib")})


Lines = Dict[Tuple[str, int], dict]


def counters() -> Tuple[Lines, Dict[Tuple[str, str], int]]:
    """What gcov says of each line of each file, and how often each function ran."""
    lines: Lines = {}
    functions: Dict[Tuple[str, str], int] = {}
    for data in BUILD.rglob("*.gcda"):
        said = subprocess.run(["gcov", "--json-format", "--stdout", str(data)], capture_output=True, text=True, check=True, cwd=ROOT).stdout
        for file in (f for part in said.splitlines() if part for f in json.loads(part)["files"]):
            for line in file["lines"]:
                lines[file["file"], line["line_number"]] = line
            for function in file["functions"]:
                functions[file["file"], function["name"]] = function["execution_count"]
    return lines, functions


def entries() -> Iterator[Tuple[str, str, int, str]]:
    """(way, file, line, function of its row or '') for each place where a way is entered."""
    for path in sorted((ROOT / "csrc").glob("*/*.c")):
        text, name = path.read_text(), str(path.relative_to(ROOT))
        for found in re.finditer(r"AC_WAY\((\w+)\)|AC_WAY_(\w+)", text):
            end = text.index(";", found.start())
            run = re.search(r"\brun_\w+", text[found.start():end]) if found.group(2) else None
            yield found.group(1) or found.group(2), name, text.count("\n", 0, found.start()) + 1, run.group() if run else ""


def main() -> int:
    build()
    test()
    sys.path.insert(0, str(BUILD / "lib"))
    import ampc

    ways = {way["name"]: way for way in ampc._C._ways()}
    lines, functions = counters()
    executed = dict.fromkeys(ways, 0)
    for way, file, number, function in entries():
        line = lines.get((file, number), {"count": 0, "unexecuted_block": True})
        count = functions.get((file, function), 0) if function else 0 if line["unexecuted_block"] else line["count"]
        executed[way] = max(executed[way], count)
        print(f"{way:26} {file}:{number:<5} {count or 'not executed':>14}")
    lacking = [w for w, count in executed.items() if not count and not ways[w]["reachable"]]
    missing = [w for w, count in executed.items() if not count and ways[w]["reachable"]]
    files = sorted({file for _, file, _, _ in entries()})
    for file in files:
        counts = [line["count"] for (name, _), line in lines.items() if name == file]
        print(f"{file:34} {sum(map(bool, counts)):5} of {len(counts):5} lines")
    print(f"\n{len(ways) - len(lacking) - len(missing)} of {len(ways)} ways executed; of other instruction sets: {', '.join(lacking) or 'none'}")
    if missing:
        print(f"NOT EXECUTED: {', '.join(missing)}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
