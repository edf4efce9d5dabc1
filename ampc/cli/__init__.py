"""The command ``ampc``."""

from __future__ import annotations

import argparse
import sys
from typing import List, Optional

from .advise import add_advise
from .bench import add_bench
from .check import add_check
from .demo import add_demo
from .formats import add_formats
from .info import info
from .replay import add_replay
from .run import add_run


def make_parser() -> argparse.ArgumentParser:
    """Of all subcommands."""
    parser = argparse.ArgumentParser(prog="ampc", description="Mixed-precision training: what this installation can do, and a demonstration.")
    commands = parser.add_subparsers(dest="command", metavar="command")
    commands.add_parser("info", help="version, compiler, CPU features, BLAS, threads, CUDA").set_defaults(run=lambda args: print(info()))
    add_demo(commands)
    add_run(commands)
    add_check(commands)
    add_advise(commands)
    add_replay(commands)
    add_formats(commands)
    add_bench(commands)
    return parser


def main(argv: Optional[List[str]] = None) -> int:
    """Runs a subcommand; returns the exit status."""
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 2
    status = args.run(args)
    return status if isinstance(status, int) else 0  # the demonstration gives its runs


if __name__ == "__main__":
    sys.exit(main())
