"""``ampc formats``: the range and precision of floating point formats."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ._common import examples


def add_formats(commands: Any) -> None:
    """Adds the subcommand."""
    parser = commands.add_parser("formats", help="range, digits and hardware of float16, bfloat16, tf32, float32",
                                 description="Prints the table. Exits with 0, or 1 where a picture cannot be drawn.",
                                 epilog=examples("ampc formats", "ampc formats --picture formats.png"))
    parser.add_argument("--picture", metavar="FILE", help="draw the ranges, too (needs matplotlib)")
    parser.set_defaults(run=_formats)


def _formats(args: argparse.Namespace) -> int:
    from ..formats import formats

    table = formats()
    print(table)
    if args.picture:
        try:
            table.save(args.picture)
        except (ImportError, OSError, ValueError) as error:
            print(f"ampc formats: {error}", file=sys.stderr)
            return 1
    return 0
