"""Whether the tests of the ways through the kernels run the code behind each: builds the core with gcov's counters in build/coverage, runs
tests/test_machines.py on it, and looks at the line where each way of csrc/base/ways.def is entered.

    python tools/coverage_of_ways.py   # exit status 1 when a line was not executed whose instruction set this CPU has

A way that a row of a table names (a micro-kernel) is entered where its function runs."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Iterator, Tuple

import counters
from counters import ROOT


def entries() -> Iterator[Tuple[str, str, int, str]]:
    """(way, file, line, function of its row or '') for each place where a way is entered."""
    for path in sorted((ROOT / "csrc").rglob("*.c")):
        text, name = path.read_text(), str(path.relative_to(ROOT))
        for found in re.finditer(r"AC_WAY\((\w+)\)|AC_WAY_(\w+)", text):
            end = text.index(";", found.start())
            run = re.search(r"\brun_\w+", text[found.start():end]) if found.group(2) else None
            yield found.group(1) or found.group(2), name, text.count("\n", 0, found.start()) + 1, run.group() if run else ""


def main() -> int:
    counters.build()
    command, env = counters.pytest_command("test_machines.py")
    subprocess.run(command, cwd=ROOT / "tests", env=env, check=True)
    sys.path.insert(0, str(counters.LIB))
    import ampc

    ways = {way["name"]: way for way in ampc._C._ways()}
    lines, functions = counters.of_the_core()
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
