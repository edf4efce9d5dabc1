"""Tries ampc under conditions that a developer's machine does not have, and writes how it behaves to docs/machines.md.

    python tools/elsewhere.py                       # tries all conditions; exits with 1 if one fails
    python tools/elsewhere.py --only NAME [NAME]    # tries those whose names contain one of these
    python tools/elsewhere.py --list                # prints the names
    python tools/elsewhere.py --save                # tries all, and writes docs/machines.md

It needs Linux, and ampc built in place in this folder. Some conditions need root, a compiler or a package index. Without these a
condition is skipped, and the reason is shown; it never counts as passed.

The conditions are in tools/conditions/. Each runs the same small training in a process of its own, and its parameters must have the
same bits as in a process without the condition.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
from typing import List, NamedTuple

from conditions import CONDITIONS, ROOT, SAME, Condition, Skipped

for _topic in ("interpreters", "folders", "limits", "terminals"):  # each registers its conditions; the table has this order
    importlib.import_module(f"conditions.{_topic}")

PAGE = ROOT / "docs" / "machines.md"
HEAD = """# Other machines

`ampc selftest` says whether a machine's numbers are right. This page says how ampc behaves under unusual conditions. `python tools/elsewhere.py --save`
tried each of them with the same small training: convolutions, norms, autocast, a loss scaler and a checkpoint.

"The same bits" means that the trained parameters equal those of a process without the condition. A condition is skipped if the machine that
wrote this table could not make it.
"""


class Result(NamedTuple):
    """How one condition went."""

    condition: Condition
    state: str  # passed, failed or skipped
    text: str


def attempt(c: Condition) -> Result:
    try:
        return Result(c, "passed", c.attempt() or SAME)
    except Skipped as reason:
        return Result(c, "skipped", str(reason))
    except (AssertionError, subprocess.TimeoutExpired) as error:
        return Result(c, "failed", str(error))


def page(results: List[Result]) -> str:
    """The text of docs/machines.md."""
    lines = [HEAD]
    for group in dict.fromkeys(r.condition.group for r in results):
        lines += [f"## {group}", "", "| Condition | Result | How ampc behaves |", "|---|---|---|"]
        cells = [(r.condition.text, r.state, " ".join(r.text.split())) for r in results if r.condition.group == group]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells] + [""]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="try the conditions whose names contain one of these")
    parser.add_argument("--list", action="store_true", help="print the names of the conditions")
    parser.add_argument("--save", action="store_true", help="write docs/machines.md; tries all conditions")
    args = parser.parse_args()
    if args.save and args.only:
        parser.error("--save tries all conditions and cannot be combined with --only")
    chosen = [c for c in CONDITIONS if not args.only or any(word in c.name for word in args.only)]
    if args.list:
        print("\n".join(f"{c.name:<24} {c.text}" for c in CONDITIONS))
        return 0
    if not chosen:
        parser.error(f"no condition has a name with {' or '.join(args.only)}; --list prints the names")
    results = []
    for i, c in enumerate(chosen, 1):
        print(f"[{i:2}/{len(chosen)}] {c.name:<24} ", end="", flush=True)
        begin = time.monotonic()
        results.append(attempt(c))
        print(f"{results[-1].state:<8} {time.monotonic() - begin:5.1f} s  {results[-1].text}", flush=True)
    count = {state: sum(r.state == state for r in results) for state in ("passed", "failed", "skipped")}
    print(", ".join(f"{n} {state}" for state, n in count.items()))
    if args.save:
        PAGE.write_text(page(results), encoding="utf-8")
    return int(count["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
