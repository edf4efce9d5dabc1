"""``ampc selftest``: whether the kernels that this machine chooses give right numbers."""

from __future__ import annotations

import argparse
import sys
from typing import Any


def add_selftest(commands: Any) -> None:
    """Adds the subcommand."""
    parser = commands.add_parser("selftest", help="whether this machine's kernels give right numbers, in half a minute",
                                 description="Runs every kernel that this machine chooses, at sizes on either side of each border, against float64 "
                                             "computed beside it. Exits with 0 when all is right, 1 when something is wrong, 130 after Ctrl-C.")
    parser.add_argument("--long", action="store_true", help="go on with other numbers for an hour")
    parser.add_argument("--seconds", type=float, default=0.0, metavar="N", help="go on with other numbers for N seconds")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the numbers; the report names it")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the kernels run")
    parser.add_argument("--output", metavar="FILE", help="write the report, with `ampc info`, to send it")
    parser.add_argument("--json", metavar="FILE", help="write all results")
    parser.set_defaults(run=_selftest)


def _selftest(args: argparse.Namespace) -> int:
    from .. import cuda
    from ..selftest import selftest
    from .info import info

    if args.device == "cuda" and not cuda.is_available():
        print("ampc selftest: there is no GPU that can be used; `ampc info` says what is missing", file=sys.stderr)
        return 2
    report = selftest(3600.0 if args.long else args.seconds, args.seed, args.device, progress=True)
    print(report)
    try:
        for path, text in ((args.output, f"{info()}\n\n{report}\n"), (args.json, report.to_json())):
            if path:
                with open(path, "w", encoding="utf-8") as f:
                    f.write(text)
    except OSError as error:
        print(f"ampc selftest: the report cannot be written: {error}", file=sys.stderr)
        return 1
    return 1 if report.wrong else 0 if report.finished else 130
