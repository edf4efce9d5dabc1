"""``ampc check``: misuse of mixed precision in scripts, read without running them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, Iterator, List

from ._common import examples


def add_check(commands: Any) -> None:
    """Adds the subcommand."""
    parser = commands.add_parser("check", help="find misuse of mixed precision in scripts without running them",
                                 description="Reads PyTorch or ampc scripts. Exits with 0: nothing found but notes about speed, 1: something was, "
                                 "2: a file could not be read. `# ampc: ignore[rule]` at the end of a line silences a rule there.",
                                 epilog=examples("ampc check train.py", "ampc check src/ examples/              every .py file in these folders",
                                                 "ampc check --format json src/          for other programs",
                                                 "ampc check --format github src/        annotations on GitHub"))
    parser.add_argument("scripts", nargs="+",
                        help="files, or folders whose .py files are read; hidden folders and virtual environments in them are left out")
    parser.add_argument("--format", choices=["text", "json", "github"], default="text", help="github: annotations of a workflow's run")
    parser.set_defaults(run=_check)


def _files(paths: List[str]) -> Iterator[str]:
    """Each file once, also where it is named and lies in a folder that is."""
    seen = set()
    for path in _named(paths):
        if os.path.realpath(path) not in seen:
            seen.add(os.path.realpath(path))
            yield path


def _has_scripts(folder: str) -> bool:
    """Not a hidden folder, nor one of packages that somebody else wrote: a virtual environment, site-packages, node_modules."""
    name = os.path.basename(folder)
    left_out = name.startswith(".") or name in ("__pycache__", "node_modules", "site-packages")
    return not left_out and not os.path.exists(os.path.join(folder, "pyvenv.cfg"))


def _named(paths: List[str]) -> Iterator[str]:
    for path in paths:
        if os.path.isdir(path):
            for folder, within, names in os.walk(path):
                within[:] = sorted(name for name in within if _has_scripts(os.path.join(folder, name)))
                yield from (os.path.join(folder, n) for n in sorted(names) if n.endswith(".py"))
        else:
            yield path


def _check(args: argparse.Namespace) -> int:
    from ..check import check_file

    found, read, unread = [], 0, 0
    for path in _files(args.scripts):
        try:
            found += check_file(path)
            read += 1
        except (OSError, SyntaxError, ValueError) as error:
            unread += 1
            print(f"ampc check: {path}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
    if args.format == "json":
        print(json.dumps([f._asdict() for f in found], indent=2))
    for f in found if args.format != "json" else []:
        github = f"::{'notice' if f.is_note else 'warning'} file={f.file},line={f.line},title=ampc {f.rule}::{f.message}; {f.fix}"
        print(github if args.format == "github" else str(f))
    if args.format == "text" and not found and not unread:
        print(f"no findings in {read} file{'s' * (read != 1)}")
    return 2 if unread else 1 if any(not f.is_note for f in found) else 0
