"""``ampc selftest``: whether this machine's kernels are right."""

from __future__ import annotations

import argparse
import secrets
import sys
from typing import Any

HOUR = 3600.0


def add_selftest(commands: Any) -> None:
    """Adds the subcommand."""
    parser = commands.add_parser(
        "selftest", help="whether every kernel gives right numbers on this machine (half a minute)", description="Runs every kernel that this "
        "machine's facts choose against float64, at sizes on either side of each border between two ways through it, and at random ones. Exits with "
        "0 where all is right, 1 where something is wrong, 2 where it cannot run, 130 where it was stopped and nothing was wrong so far.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="what is tested (cpu)")
    parser.add_argument("--long", action="store_true", help="go on with random sizes for an hour, until Ctrl-C")
    parser.add_argument("--seconds", type=float, metavar="N", help="go on with random sizes for so long")
    parser.add_argument("--seed", type=int, help="the seed of an earlier run, which this one repeats (0; of a long one another each time)")
    parser.add_argument("--output", metavar="FILE", help="write the report, with `ampc info`, for a bug report")
    parser.add_argument("--json", metavar="FILE", help="write every trial: ways, sizes, error, seconds")
    parser.set_defaults(run=_selftest)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def _selftest(args: argparse.Namespace) -> int:
    import ampc

    from ..selftest import selftest
    from .info import facts_of

    seconds = args.seconds if args.seconds is not None else HOUR if args.long else 0.0
    if seconds < 0:
        print(f"ampc selftest: --seconds must be 0 or more, got {seconds:g}", file=sys.stderr)
        return 2
    if args.device == "cuda" and not ampc.cuda.is_available():
        print("ampc selftest: no GPU can be used; `ampc info` says what is missing", file=sys.stderr)
        return 2
    seed = args.seed if args.seed is not None else secrets.randbits(31) if seconds else 0
    print("\n".join(facts_of(args.device)), end="\n\n", flush=True)
    report = selftest(args.device, seconds, seed, progress=True)
    print(report)
    try:
        if args.output:
            _write(args.output, report.whole())
        if args.json:
            _write(args.json, report.to_json())
    except OSError as error:
        print(f"ampc selftest: {error}", file=sys.stderr)
        return 1 if report.wrong else 2
    return 1 if report.wrong else 130 if report.interrupted else 0
