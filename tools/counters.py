"""A build of the package that counts which lines run: the core's by gcov, the package's by coverage.py. For coverage_of_ways.py and never_run.py.

The build is the set `coverage` of setup.py, in build/coverage. Each process that a test starts counts too, if it inherits the environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, List, Tuple

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "coverage"
LIB = BUILD / "lib"
PYTHON_DATA = BUILD / "python"

START_PYTHON = """import os

if "COVERAGE_PROCESS_START" in os.environ:
    import coverage

    coverage.process_startup()
"""
CONFIGURATION = f"""[run]
source = {LIB / "ampc"}
data_file = {PYTHON_DATA / "data"}
parallel = true
sigterm = true

[report]
exclude_also =
    if .*sys.platform ==
    if .*os.name ==
    if TYPE_CHECKING
"""

# Each run draws the same examples, so that a part of the tests runs no line that the whole does not.
SAME_DRAWS = {"AMPC_TEST_SEED": "0", "AMPC_PROGRAMS": "500"}

# It interrupts Python at any instruction, coverage.py's own too, which then waits forever. So only its lines of C are counted.
NOT_TRACED = ("test_scopes.py",)

Lines = Dict[Tuple[str, int], dict]
Functions = Dict[Tuple[str, str], int]


def build(keep: bool = False) -> None:
    """Builds the package with counters in LIB. All counters are zero afterwards, unless those of an earlier run on the same sources are kept."""
    env = {**os.environ, "AMPC_BUILD": "coverage", "AMPC_CUDA": "0"}
    subprocess.run([sys.executable, "setup.py", "--quiet", "build"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env=env)
    for copied in LIB.glob("ampc/**/*.py"):
        if not (ROOT / copied.relative_to(LIB)).exists():
            copied.unlink()  # of a file that was moved since
    PYTHON_DATA.mkdir(exist_ok=True)
    for counted in [] if keep else [*BUILD.rglob("*.gcda"), *PYTHON_DATA.iterdir()]:
        counted.unlink()
    (LIB / "sitecustomize.py").write_text(START_PYTHON)
    (PYTHON_DATA / "configuration").write_text(CONFIGURATION)


def pytest_command(*arguments: str) -> Tuple[List[str], Dict[str, str]]:
    """A command that runs pytest with these arguments on the build, from tests/, and its environment."""
    options = ["-c", "../pyproject.toml", "--rootdir", ".", "-q", "--no-header", "-p", "no:cacheprovider", "-m", "not slow"]
    return [sys.executable, "-m", "pytest", *options, *arguments], {**os.environ, "PYTHONPATH": str(LIB)}


def test_file(name: str, seconds: float) -> str:
    """Runs one file of tests, counts the lines of Python too, and returns what it printed. After so many seconds it is interrupted."""
    command, env = pytest_command(name)
    env.update(SAME_DRAWS)
    if name not in NOT_TRACED:
        env["COVERAGE_PROCESS_START"] = str(PYTHON_DATA / "configuration")
    with subprocess.Popen([*command, "--hypothesis-seed=0"], cwd=ROOT / "tests", env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        for wait, end in ((seconds, signal.SIGINT), (30, signal.SIGKILL)):  # interrupted, it writes its counters
            try:
                return process.communicate(timeout=wait)[0]
            except subprocess.TimeoutExpired:
                process.send_signal(end)
        return process.communicate()[0] + "\nkilled: it did not end"


def test_in_c() -> None:
    """Runs the core's own C tests, linked with the same objects."""
    subprocess.run(["make", "--silent", "-C", "tests/c", "SET=coverage"], cwd=ROOT)


def _gcov(data: Path) -> List[dict]:
    said = subprocess.run(["gcov", "--json-format", "--stdout", str(data)], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return [file for part in said.splitlines() if part for file in json.loads(part)["files"] if file["file"].startswith("csrc/")]


def of_the_core() -> Tuple[Lines, Functions]:
    """What gcov says of each line of each file, and how often each function ran. A line of several functions, as one of a header, has
    the sum of their counts."""
    lines: Lines = {}
    functions: Functions = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        files = [file for found in pool.map(_gcov, sorted(BUILD.rglob("*.gcno"))) for file in found]
    for file in files:
        for line in file["lines"]:
            known = lines.setdefault((file["file"], line["line_number"]), {"count": 0, "unexecuted_block": True})
            known["count"] += line["count"]
            known["unexecuted_block"] &= line["unexecuted_block"]
        for function in file["functions"]:
            key = file["file"], function["name"]
            functions[key] = functions.get(key, 0) + function["execution_count"]
    return lines, functions


def of_the_package() -> Lines:
    """Which lines of Python ran, as coverage.py counts them: a statement has the number of its first line."""
    import coverage

    measured = coverage.Coverage(config_file=str(PYTHON_DATA / "configuration"))
    measured.combine(keep=True)
    lines: Lines = {}
    for path in sorted((LIB / "ampc").rglob("*.py")):
        _, statements, _, missing, _ = measured.analysis2(str(path))
        for number in statements:
            lines[str(path.relative_to(LIB)), number] = {"count": int(number not in missing)}
    return lines
