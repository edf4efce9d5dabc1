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
        "selftest", help="whether every kernel gives right numbers on this machine (half a minute)", description="Runs every kernel that this "
        "machine's facts choose against float64, at sizes on either side of each border between two ways through it, and at random ones. Exits with "
        "0 where all is right, 1 where something is wrong, 2 where it cannot run, 130 where it was stopped and nothing was wrong so far.",
        epilog=examples("ampc selftest", "ampc selftest --output report.txt      for a bug report",
                        "ampc selftest --seconds 300            five minutes of random sizes after it",
                        "ampc selftest --device cuda --quiet    the GPU's, and only what is wrong"))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="what is tested (cpu)")
    longer = parser.add_mutually_exclusive_group()
    longer.add_argument("--long", action="store_const", const=HOUR, dest="seconds", help="then go on with random sizes for an hour, until Ctrl-C")
    longer.add_argument("--seconds", type=float, metavar="N", help="then go on with random sizes for so long")
    parser.add_argument("--seed", type=int, help="the seed of an earlier run, which this one repeats (0; of a long one another each time)")
    parser.add_argument("--output", metavar="FILE", help="write the report, with `ampc info`, for a bug report")
    parser.add_argument("--json", metavar="FILE", help="write every trial: ways, sizes, error, seconds")
    parser.add_argument("--quiet", action="store_true", help="print only what is wrong, and the end of the report")
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
    from .._installation import facts_of
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
