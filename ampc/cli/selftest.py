"""``ampc selftest``: whether this machine's kernels are right."""

from __future__ import annotations

import argparse
import faulthandler
import secrets
import signal
import sys
from contextlib import contextmanager
from typing import Any, Iterator

from ._common import examples, must_be_writable

HOUR = 3600.0


def add_selftest(commands: Any) -> None:
    """Adds the subcommand."""
    parser = commands.add_parser(
        "selftest", help="whether every kernel gives right numbers on this machine (half a minute)", description="Compares every kernel that "
        "this machine uses with float64. Sizes are random, and on both sides of each border at which a kernel changes its algorithm. "
        "Exits with 0 if all results are right, 1 if one is wrong, 2 if it cannot run, and 130 if it was stopped before it found an error.",
        epilog=examples("ampc selftest", "ampc selftest --output report.txt      for a bug report",
                        "ampc selftest --seconds 300            then five minutes of random sizes",
                        "ampc selftest --device cuda --quiet    the GPU's kernels; prints only errors"))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="whose kernels to test (cpu)")
    longer = parser.add_mutually_exclusive_group()
    longer.add_argument("--long", action="store_const", const=HOUR, dest="seconds", help="then test random sizes for an hour, or until Ctrl-C")
    longer.add_argument("--seconds", type=float, metavar="N", help="then test random sizes for this many seconds")
    parser.add_argument("--seed", type=int, help="repeat the run with this seed (0; a long run has a new one each time)")
    parser.add_argument("--output", metavar="FILE", help="write the report and `ampc info`, for a bug report")
    parser.add_argument("--json", metavar="FILE", help="write every trial: ways, sizes, error, seconds")
    parser.add_argument("--quiet", action="store_true", help="print only errors and the summary")
    parser.set_defaults(run=_selftest)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


@contextmanager
def _ended_from_outside() -> Iterator[None]:
    """SIGTERM, as that of `timeout`, ends what is within as Ctrl-C does; a crash says where it was."""
    if not faulthandler.is_enabled() and sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _selftest(args: argparse.Namespace) -> int:
    from .._process.installation import facts_of
    from ..selftest import check_arguments, selftest

    seconds = args.seconds or 0.0
    seed = args.seed if args.seed is not None else secrets.randbits(31) if seconds else 0
    try:
        check_arguments(args.device, seconds, seed)
        must_be_writable(args.output, args.json)
    except (OSError, RuntimeError, ValueError) as error:
        print(f"ampc {error}" if str(error).startswith("selftest") else f"ampc selftest: {error}", file=sys.stderr)
        return 2
    if not args.quiet:
        print("\n".join(facts_of(args.device)), end="\n\n", flush=True)
    with _ended_from_outside():
        report = selftest(args.device, seconds, seed, progress=not args.quiet)
    status = 1 if report.wrong else 2 if report.failure else 130 if report.interrupted else 0
    try:
        if args.output:
            _write(args.output, report.whole())
        if args.json:
            _write(args.json, report.to_json())
        print(report.verdict() if args.quiet else report)
        if report.wrong:
            attached = args.output or "the file that `ampc selftest --output FILE` writes"
            print(f"\nPlease report this where you got ampc, and attach {attached}.", flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"ampc selftest: {error}", file=sys.stderr)
        return status or 2
    return status
