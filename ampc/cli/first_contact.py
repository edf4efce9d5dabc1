"""``ampc first-contact``: what a new machine's GPU does with this installation, in ten minutes and one file."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from typing import IO, Any, List, NamedTuple, Optional, Tuple

from ._common import examples, must_be_writable

PATIENCE = 10.0  # seconds for a process to die
LINES = 200  # of a part's output that the report keeps, the last ones
SUITES = ("cuda", "cuda_memory", "cuda_graphs", "cuda_training", "ops", "autograd", "scaler", "nn")  # of a checkout's tests


class Part(NamedTuple):
    """One command of the run."""

    name: str
    command: List[str]  # empty: it is left out
    seconds: float  # that it may take
    why: str = ""  # it is left out


def add_first_contact(commands: Any) -> None:
    """Adds the subcommand."""
    parser = commands.add_parser(
        "first-contact", help="what this machine's GPU makes of ampc (ten minutes, one report)", description="Tries this installation on a GPU that "
        "it has not seen: the libraries that are found, products of many shapes in every dtype, every kernel against float64, CUDA graphs, and "
        "speeds beside torch. Where a checkout's tests, or compute-sanitizer, are there, these run, too. Each part runs in a process of its own with "
        "a time limit, and the next one runs whatever became of it. Exits with 0 if all went well, 1 if a part failed, and 2 if there is no usable "
        "GPU.",
        epilog=examples("ampc first-contact", "ampc first-contact --output report.txt       for a bug report",
                        "ampc first-contact --tests ampc/tests        with the tests of a checkout"))
    parser.add_argument("--output", metavar="FILE", default="first-contact.txt", help="where the report goes (first-contact.txt)")
    parser.add_argument("--tests", metavar="DIR", help="the folder `tests` of a checkout (the one of the current folder, if there is one)")
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help="how long all parts together may take (10)")
    parser.add_argument("--small", action="store_true", help="few and small sizes, to try the command itself")
    parser.set_defaults(run=first_contact)


def _parts(tests: Optional[str], small: bool) -> List[Part]:
    python = [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else []), "-m"]  # not the sources of a checkout, where this is begun in one
    contact = [*python, "ampc.selftest.first_contact"]
    less = ["--small"] if small else []
    from ..selftest.first_contact import DTYPES

    sanitizer = shutil.which("compute-sanitizer")
    checked = [sanitizer, "--tool", "memcheck", "--error-exitcode", "9", *contact, "products", "float16", "--small"] if sanitizer else []
    side_by_side = ["-n", str(min(os.cpu_count() or 1, 16))] if find_spec("xdist") else []
    suites = [os.path.join(tests, f"test_{name}.py") for name in SUITES] if tests else []
    table = os.path.join(os.path.dirname(tests), "benchmarks", "gpu.py") if tests else ""
    beside = [sys.executable, table, *less] if os.path.exists(table) and not small else [*contact, "speed", *less]
    return [
        Part("the machine", ["nvidia-smi"] if shutil.which("nvidia-smi") else [], 20, "nvidia-smi is not there"),
        Part("ampc info", [*python, "ampc", "info"], 60),
        *(Part(f"products, {name}", [*contact, "products", name, *less], 60) for name in DTYPES),
        *(Part(f"convolutions, {name}", [*contact, "convolutions", name, *less], 60) for name in DTYPES),
        Part("kernels against float64", [*python, "ampc", "selftest", "--device", "cuda", "--quiet"], 150) if not small else
        Part("kernels against float64", [], 0, "--small"),
        Part("CUDA graphs", [*contact, "graphs", *less], 40),
        Part("NCCL, one process", [*contact, "nccl"], 40),
        Part("speed", beside, 100),
        Part("compute-sanitizer", checked, 90, "compute-sanitizer is not there"),
        Part("tests", [*python, "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", *side_by_side, *suites] if suites and not small else [], 240,
             "--small" if small else "no folder of tests is there (--tests DIR)"),
    ]


class Found(NamedTuple):
    """What this machine has."""

    unusable: str  # why no GPU can be used; "" where one can
    nccl: bool = False
    simulated: bool = False  # the GPU


class _Report:
    """A file that is written as the parts end, and the terminal. Where one of them takes no more, the other still does."""

    def __init__(self, file: IO[str]) -> None:
        self._file, self.ended = file, []  # type: ignore[var-annotated]  # (part, how it ended, its seconds)
        self.lost = ""  # why the file is not complete

    def say(self, text: str, terminal: bool = True) -> None:
        try:
            self._file.write(text + "\n")
            self._file.flush()
        except OSError as error:
            if not self.lost:
                self.lost = str(error)
                print(f"the report cannot be written any more ({error}); the parts go on, and what they say is here", flush=True)
        if terminal or self.lost:
            with contextlib.suppress(BrokenPipeError):
                print(text, flush=True)

    def run(self, part: Part, limit: float) -> bool:
        """Whether the part ended well. One that takes longer is ended, with all processes that it started."""
        begin = time.monotonic()
        if not part.command or limit <= 1:
            how, output = f"left out: {part.why if not part.command else 'no time is left'}", ""
        else:
            how, output = _run(part.command, min(part.seconds, limit))
        self.ended.append((part.name, how, time.monotonic() - begin))
        self.say(f"{part.name}: {how} ({self.ended[-1][2]:.0f} s of {part.seconds:.0f})")
        if part.command:
            self.say("    $ " + " ".join(part.command), terminal=False)
        lines = _kept(output.rstrip().splitlines(), how)
        if len(lines) > LINES:
            lines = [f"... {len(lines) - LINES} lines before", *lines[-LINES:]]
        self.say("\n".join("    " + line for line in lines) + "\n", terminal=False)
        return how == "good" or how.startswith("left out")


def _kept(lines: List[str], how: str) -> List[str]:
    """What a part has said: of the lines that tell what comes next only the last, where a signal or the time ended it."""
    from ..selftest.first_contact import PROGRESS

    ahead = [line[len(PROGRESS):] for line in lines if line.startswith(PROGRESS)]
    said = [line for line in lines if not line.startswith(PROGRESS)]
    return [*said, f"it ended in: {ahead[-1]}"] if ahead and how.startswith(("FAILED: signal", "FAILED: ended")) else said


def _run(command: List[str], limit: float) -> Tuple[str, str]:
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, errors="replace",
                                   start_new_session=True)
    except OSError as error:
        return f"FAILED: {error}", ""
    try:
        output, _ = process.communicate(timeout=limit)
    except BaseException as error:  # Ctrl-C, too
        output = _end(process)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        return f"FAILED: ended after {limit:.0f} s", output
    code = process.returncode
    return ("good" if code == 0 else f"FAILED: signal {-code}" if code < 0 else f"FAILED: exit status {code}"), output


def _end(process: subprocess.Popen[str]) -> str:
    """Ends a process and those that it started. What they have said; nothing if one of them does not end, as may be while a driver hangs."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    try:
        return process.communicate(timeout=PATIENCE)[0]
    except subprocess.TimeoutExpired as error:
        said: Any = error.output or b""
        return (said if isinstance(said, str) else said.decode(errors="replace")) + "\n(a process of it does not end)"


def _tests_near(given: Optional[str]) -> Optional[str]:
    folder = os.path.abspath(given or "tests")
    return folder if os.path.exists(os.path.join(folder, "test_cuda.py")) else None


def why_not() -> str:
    """What keeps this machine's GPU from being used, in the words of the error; "" where nothing does."""
    from .. import zeros

    try:
        zeros(1, device="cuda")
    except RuntimeError as error:
        return str(error).partition("cannot be used: ")[2].partition("; test cuda.is_available()")[0] or str(error)
    return ""


def _look() -> Found:
    """What is there. Another process asks: a broken driver may end it, or never answer."""
    ask = ("from ampc import _C; from ampc.cli.first_contact import why_not; from ampc.distributed import is_nccl_available; "
           "print('GPU', why_not().replace('\\n', ' ')); print('NCCL', is_nccl_available()); print('SIMULATED', _C._cuda_is_simulated())")
    how, output = _run([sys.executable, *(["-P"] if sys.version_info >= (3, 11) else []), "-c", ask], 60)
    said = {line.partition(" ")[0]: line.partition(" ")[2].strip() for line in output.splitlines()}
    if how != "good" or "GPU" not in said:
        return Found(f"looking for it {how.replace('FAILED: ', 'failed: ')}")
    return Found(said["GPU"], said.get("NCCL") == "True", said.get("SIMULATED") == "True")


def first_contact(args: argparse.Namespace) -> int:
    """Runs all parts. 0: all went well; 1: one failed; 2: there is no usable GPU."""
    from ..version import __version__

    must_be_writable(args.output)
    end = time.monotonic() + args.minutes * 60
    file = open(args.output, "w", encoding="utf-8")  # noqa: SIM115  closing it may fail, too
    try:
        report = _Report(file)
        report.say(f"ampc {__version__}, first contact, {time.strftime('%Y-%m-%d %H:%M')}, Python {platform.python_version()}, {platform.platform()}")
        found = _look()
        if found.simulated and not args.small:
            report.say("the GPU is simulated, which is slow: sizes are few and small, as with --small")
        good = True
        for part in _parts(_tests_near(args.tests), args.small or found.simulated):
            if found.unusable and part.name not in ("the machine", "ampc info"):
                part = part._replace(command=[], why="no usable GPU, see ampc info")
            elif not found.nccl and part.name.startswith("NCCL"):
                part = part._replace(command=[], why="NCCL is not there")
            good = report.run(part, end - time.monotonic()) and good
        failed = [name for name, how, _ in report.ended if how.startswith("FAILED")]
        report.say(f"{len(report.ended)} parts, {sum(s for _, _, s in report.ended):.0f} s; "
                   + (f"failed: {'; '.join(failed)}" if failed else "none failed")
                   + (f"; there is no usable GPU: {found.unusable}" if found.unusable else ""))
        if failed:
            report.say("The report has the command of each part, which runs it alone, and what it said. Please attach it to an issue.")
    finally:
        with contextlib.suppress(OSError):
            file.close()
    print(f"the report is in {args.output}" + (f", and not complete: {report.lost}" if report.lost else ""))
    return 2 if found.unusable else int(not good or bool(report.lost))
