"""Measures which lines of the core and of the package the tests run, and compares those that none runs with tests/never_run.txt.

    python tools/never_run.py             # all tests: fails where the list lacks a line that no test ran, or has one that ran
    python tools/never_run.py --part 6    # six test files, drawn: tells which lines of the list ran; --seed repeats a draw
    python tools/never_run.py --tests test_ops.py ...    # the same with these
    python tools/never_run.py --minutes 3 # all tests, in pieces: begins none after so many minutes, and goes on from there when it is called again
    python tools/never_run.py --update    # writes the list; of a part, only takes out what ran

Both print the share of lines that ran. What fails among the tests is named, but is not this tool's to judge."""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple
from typing import Counter as CounterOf

import counters
from counters import ROOT
from pieces import Pieces, fingerprint

LIST = ROOT / "tests" / "never_run.txt"
SECONDS = 45  # that the tests of a part have
LONGEST = 3600  # seconds of one file
SOURCES = (".c", ".h", ".inc", ".def", ".py", ".pyi")
HEAD = """\
# Lines that no test runs, by file and function: `make coverage` compares them, `make coverage UPDATE=1` writes this file.
# A line is known by its text, so that it may move. It stands here as often as its function has it and never runs it; `*` is a whole function.
# Left out: csrc/cuda/ and csrc/python/cuda.c, which `make sim` runs; what only another platform compiles or runs; and files whose
# `#pragma GCC target` names an instruction set that the CPU lacks. Under another instruction set than the one below, csrc/cpu/ is not compared.
# instruction set: """


class Line(NamedTuple):
    """A line that can run, known by its text."""

    file: str
    function: str
    text: str


Tally = CounterOf[Line]


class Measured(NamedTuple):
    """How often each line stands in the sources, and how many of these never ran."""

    total: Tally
    never: Tally


def functions_of_c(text: str) -> List[str]:
    """For each line the function that it is in: what begins in the first column, or the macro that writes it, with its argument."""
    names, current = [], ""
    for line in text.splitlines():
        header = re.sub(r"__attribute__\s*\(\(.*?\)\)", "", line).split("{")[0]
        found = re.findall(r"(\w+)\s*\(([^),]*)", header) if re.match(r"[A-Za-z_]", header) else []
        if found:
            by_macro = header.startswith(found[0][0]) and found[0][0].isupper()
            current = "{}({})".format(*found[0]) if by_macro else next((name for name, _ in found if not name.isupper()), found[0][0])
        names.append(current)
        if line.startswith("}"):
            current = ""
    return names


def functions_of_python(text: str) -> List[str]:
    """For each line the function that it is in. The line of a `def` belongs to what is around it, because that runs it."""
    names = [""] * (text.count("\n") + 1)

    def visit(node: ast.AST, outer: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = outer
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = f"{outer}.{child.name}" if outer else child.name
                begin, end = child.body[0].lineno - 1, child.end_lineno or 0
                names[begin:end] = [name] * (end - begin)
            visit(child, name)

    visit(ast.parse(text), "")
    return names


def measured(lines: counters.Lines, sources: Dict[str, str]) -> Measured:
    """The lines of a run, known by their text."""
    total: Tally = Counter()
    never: Tally = Counter()
    by_file: Dict[str, List[Tuple[int, dict]]] = {}
    for (file, number), line in lines.items():
        by_file.setdefault(file, []).append((number, line))
    for file, found in by_file.items():
        texts = sources[file].splitlines()
        names = (functions_of_python if file.endswith(".py") else functions_of_c)(sources[file])
        for number, line in sorted(found, key=lambda pair: pair[0]):
            key = Line(file, names[number - 1], " ".join(texts[number - 1].split()))
            total[key] += 1
            never[key] += not line["count"]
    return Measured(total, +never)


def written(never: Tally, total: Tally) -> str:
    """The list as it is kept: the lines of each function in their order, or `*` where none of them ever runs."""
    of_function: CounterOf[Tuple[str, str]] = Counter()
    for line, n in (total - never).items():
        of_function[line[:2]] += n
    rows: Dict[str, List[str]] = {}
    for line in sorted(filter(never.get, total), key=lambda line: line.file):
        names = rows.setdefault(line.file, [])
        if of_function[line[:2]]:
            names += [f"    {line.function}: {line.text}"] * never[line]
        elif f"    {line.function}: *" not in names:
            names.append(f"    {line.function}: *")
    return "".join("\n".join([file, *names, ""]) for file, names in rows.items())


def read(text: str, total: Tally) -> Tally:
    """The lines that a list names. A whole function's are those of the sources as they are."""
    lines: Tally = Counter()
    whole = set()
    file = ""
    for row in (row for row in text.splitlines() if row and not row.startswith("#")):
        if not row.startswith(" "):
            file = row
            continue
        function, _, said = row.strip().partition(": ")
        if said == "*":
            whole.add((file, function))
        else:
            lines[Line(file, function, said)] += 1
    for line, n in total.items():
        if line[:2] in whole:
            lines[line] = n
    return lines


def waiting(text: str) -> List[str]:
    """The test files that a list has not seen yet, by its head: what they run may still stand in it."""
    return " ".join(re.findall(r"^# not run yet: (.*)$", text, re.M)).split()


def outdated(listed: Tally, found: Measured) -> Tally:
    """Lines of the list that ran. One that is not in the sources any more did not."""
    return Counter({line: n - found.never[line] for line, n in listed.items() if line in found.total and n > found.never[line]})


def set_of_this_cpu() -> str:
    sys.path.insert(0, str(counters.LIB))
    import ampc

    return ampc._C._machine()["isa"]


def left_out(file: str, source: str, flags: List[str]) -> bool:
    """By the rule in the list's head."""
    targets = re.search(r'#pragma GCC target\("(.*?)"\)', source)
    lacking = targets and any(name.replace("-", "_") not in flags for name in targets.group(1).replace("avx512bf16", "avx512_bf16").split(","))
    return file.startswith(("csrc/cuda/", "csrc/python/cuda.c")) or bool(lacking)


def cpu_flags() -> List[str]:
    cpu = Path("/proc/cpuinfo")
    found = re.search(r"^flags\s*:(.*)$", cpu.read_text(), re.M) if cpu.exists() else None
    return found.group(1).split() if found else []


def run_tests(files: List[str], seconds: float, last: float = 0, finish: Callable[[str], None] = lambda file: None) -> None:
    """A process for each file, as many at a time as there are cores; after so many seconds none begins, and those at work end, or get `last`
    seconds at least. `finish` hears of each that ran to its end."""
    begin = time.monotonic()

    def one(file: str) -> Tuple[float, List[str]]:
        started = time.monotonic()
        left = seconds - (started - begin)
        if left <= 0:
            return 0, ["not begun: the time is up"]
        most = min(max(left, last), LONGEST)
        said, took = counters.test_file(file, most), time.monotonic() - started
        if took < most:
            finish(file)
        return took, said.splitlines()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, (took, said) in zip(files, pool.map(one, files)):
            print("\n    ".join([f"{file:28} {took:4.0f} s  {said[-1] if said else ''}", *(row for row in said if row.startswith("FAILED"))]), flush=True)


def run_piece(files: List[str], seconds: float) -> List[str]:
    """Runs the C tests and the test files that no earlier piece has finished, for so many seconds, and returns those that are left."""
    sources = [ROOT / "setup.py", *(path for folder in ("csrc", "ampc") for path in (ROOT / folder).rglob("*") if path.suffix in SOURCES)]
    pieces = Pieces(counters.BUILD / "pieces.json", fingerprint(sources))
    counters.build(keep=bool(pieces.finished))
    if "C" not in pieces.finished:
        counters.test_in_c()
        pieces.finish("C")
    run_tests([file for file in files if file not in pieces.finished], seconds, LONGEST, pieces.finish)
    left = [file for file in files if file not in pieces.finished]
    if not left:
        pieces.forget()
    return left


def measure() -> Tuple[Measured, str]:
    """What ran, and a sentence of it."""
    lines, _ = counters.of_the_core()
    sources = {file: (ROOT / file).read_text() for file, _ in lines}
    flags = cpu_flags()
    core = {key: line for key, line in lines.items() if not left_out(key[0], sources[key[0]], flags)}
    package = counters.of_the_package()
    sources.update({file: (counters.LIB / file).read_text() for file, _ in package})

    def share(some: counters.Lines) -> str:
        ran = sum(bool(line["count"]) for line in some.values())
        return f"{100 * ran / len(some):.1f} % ({ran} of {len(some)} lines)"

    return measured({**core, **package}, sources), f"C: {share(core)}; Python: {share(package)}"


def shown(what: str, lines: Iterable[Line], most: int = 40) -> None:
    rows = [f"    {line.file}: {line.function}: {line.text}" for line in sorted(lines)]
    if rows:
        print("\n".join([what, *rows[:most], *([f"    and {len(rows) - most} more"] if len(rows) > most else [])]))


def main() -> int:
    parser = argparse.ArgumentParser(description="The lines that no test runs, compared with tests/never_run.txt.")
    parser.add_argument("--part", type=int, metavar="N", help="only N test files, drawn")
    parser.add_argument("--tests", nargs="+", metavar="FILE", help="only these test files")
    parser.add_argument("--minutes", type=float, metavar="M", help="all of them in pieces: after so many minutes none begins, and the next call goes on")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the draw")
    parser.add_argument("--update", action="store_true", help="write the list, or take out of it what ran")
    parser.add_argument("--measured", action="store_true", help="take the counters of the last run, and run nothing")
    options = parser.parse_args()
    part = bool(options.part or options.tests)
    files = options.tests or sorted(path.name for path in (ROOT / "tests").glob("test_*.py"))
    if options.part:
        known = sorted({*files} - {*waiting(LIST.read_text())})
        files = random.Random(options.seed).sample(known, min(options.part, len(known)))
        print(f"drawn by --seed {options.seed}: {', '.join(files)}", flush=True)
    if options.minutes and not part:
        left = run_piece(files, options.minutes * 60)
        if left:
            print(f"{len(left)} test files are left, and the same command goes on with them: {' '.join(left)}")
            return 0
    elif not options.measured:
        counters.build()
        if not part:
            counters.test_in_c()
        run_tests(files, SECONDS if options.part else float("inf"))
    found, sentence = measure()
    print(sentence)
    return judge(found, set_of_this_cpu(), files if part else None, options.update)


def judge(found: Measured, instruction_set: str, part: Optional[List[str]], update: bool) -> int:
    """Compares what was found, by all tests or by a part of the files, with the list, or writes the list. The exit status."""
    text = LIST.read_text() if LIST.exists() else HEAD + instruction_set
    of_the_list = re.findall(r"^# instruction set: (.*)$", text, re.M)[0]
    listed = read(text, found.total)
    ran, new = outdated(listed, found), Counter() if part else found.never - listed
    if of_the_list != instruction_set:
        ran, new = (Counter({line: n for line, n in tally.items() if not line.file.startswith("csrc/cpu/")}) for tally in (ran, new))
    if update:
        kept, head, unseen = (listed - ran, of_the_list, sorted({*waiting(text)} - {*part})) if part else (found.never, instruction_set, [])
        rest = f"# not run yet: {' '.join(unseen)}\n" if unseen else ""
        LIST.write_text(f"{HEAD}{head}\n{rest}\n" + written(kept, found.total))
        print(f"{LIST.name}: {sum(kept.values())} lines")
        return 0
    shown(f"{LIST.name} says that these never run, but they did; `make coverage UPDATE=1` takes them out, with PART and SEED too:", ran)
    shown(f"No test ran these, and {LIST.name} does not list them; write a test, or `make coverage UPDATE=1`:", new)
    return 1 if new or ran and not part else 0  # tests that draw their cases run a rare line by chance


if __name__ == "__main__":
    sys.exit(main())
