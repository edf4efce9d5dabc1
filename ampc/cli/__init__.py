"""The command ``ampc``."""

from __future__ import annotations

import argparse
import os
import select
import sys
from typing import Any, List, Optional

from .._process.installation import info
from ..version import __version__
from ._common import HelpFormatter, examples
from .advise import add_advise
from .bench import add_bench
from .check import add_check
from .demo import add_demo
from .first_contact import add_first_contact
from .formats import add_formats
from .replay import add_replay
from .run import add_run
from .selftest import add_selftest

EXAMPLES = examples(
    "ampc run train.py --epochs 3        a script written for torch, as it is",
    "ampc run --doctor train.py          the same, and the first inf or nan is traced to its operator",
    "ampc check train.py                 misuse of mixed precision, without running anything",
    "ampc advise train.py                which precision pays for this script",
    "ampc selftest                       are this machine's kernels right?") + "\n\n`ampc COMMAND --help` tells of one command."


class _Command(argparse.ArgumentParser):
    """Of one subcommand, which tells its own usage where an option is unknown."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": HelpFormatter, **options})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found, rest


def make_parser() -> argparse.ArgumentParser:
    """Of all subcommands."""
    parser = argparse.ArgumentParser(prog="ampc", description="Mixed-precision training: what this installation can do, and a demonstration.",
                                     epilog=EXAMPLES, formatter_class=HelpFormatter)
    parser.add_argument("--version", action="version", version=f"ampc {__version__}", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="command", parser_class=_Command)
    about = commands.add_parser("info", help="version, compiler, CPU features, BLAS, threads, CUDA",
                                description="Prints what this installation is made of and what it found on this machine.",
                                epilog=examples("ampc info", "AMPC_CPU=avx2 ampc info        as on a CPU that has no more than AVX2"))
    about.set_defaults(run=lambda args: print(info()))
    add_demo(commands)
    add_run(commands)
    add_check(commands)
    add_advise(commands)
    add_replay(commands)
    add_formats(commands)
    add_bench(commands)
    add_selftest(commands)
    add_first_contact(commands)
    return parser


def _run(argv: Optional[List[str]]) -> int:
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 0
    try:
        status = args.run(args)
    except KeyboardInterrupt:
        if args.command == "run":
            raise  # with the script's traceback
        print("ampc: stopped by hand", file=sys.stderr)
        return 130
    return status if isinstance(status, int) else 0  # the demonstration gives its runs


def _reader_left() -> bool:
    """Whether standard output is a pipe that nobody reads any more."""
    try:
        watched = select.poll()
        watched.register(sys.stdout.fileno(), 0)
        return bool(watched.poll(0))  # asked for nothing, so what it tells is an error
    except (AttributeError, OSError, ValueError):  # no such call on Windows; no file behind sys.stdout
        return False


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _drop_output() -> None:
    """Keeps Python from writing the rest again when it ends."""
    try:
        _flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(argv: Optional[List[str]] = None) -> int:
    """Runs a subcommand and returns its exit status.

    The status is 2 if a file cannot be read or written or memory runs out, and 130 after Ctrl-C; standard error says so. If the reader of a
    pipe, such as head, has gone, the command ends silently."""
    try:
        try:
            return _run(argv)
        finally:
            _flush()
    except BrokenPipeError:
        if not _reader_left():
            raise
        _drop_output()
        return 1
    except OSError as error:
        print(f"ampc: {error}", file=sys.stderr)
        _drop_output()
        return 2
    except MemoryError as error:
        print(f"ampc: memory ran out{f': {error}' if str(error) else ''}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
