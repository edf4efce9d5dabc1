"""``ampc replay``: a bad step, run again."""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import Any

from ._common import examples


def add_replay(commands: Any) -> None:
    """Adds the subcommand."""
    parser = commands.add_parser("replay", help="run a bad step again: in float32, in 16 bits, operator by operator",
                                 description="Runs the step of a file that ampc.doctor.Capsules wrote. The script is imported for the "
                                 "two functions that the capsule names, not run as __main__. Exits with 0, or 2 where it cannot be replayed.",
                                 epilog=examples(
                                     "ampc replay step-17.ampc --script train.py",
                                     "ampc replay step-17.ampc --script train.py --precision float16 --scale 1024    at a lower scale",
                                     "ampc replay step-17.ampc --script train.py --operators                         how near to overflow"))
    parser.add_argument("file")
    parser.add_argument("--script", required=True, help="the training script, whose top level has the functions")
    parser.add_argument("--precision", choices=["float32", "bfloat16", "float16"], action="append", help="only in this one (may be repeated)")
    parser.add_argument("--scale", type=float, help="multiply the loss by this in 16 bits, in place of the scale it had")
    parser.add_argument("--operators", action="store_true", help="print the doctor's report on the operators, also where every value is finite")
    parser.set_defaults(run=_replay)


def _replay(args: argparse.Namespace) -> int:
    from ..doctor import capsule, guard

    try:
        data = capsule.read(args.file)
        make_model, loss_fn = _functions(args.script, data["names"])
    except (OSError, ValueError, RuntimeError, SyntaxError) as error:
        print(f"ampc replay: {error}", file=sys.stderr)
        return 2
    print(f"step {data['step']}: loss {data['loss']:.6g} times {data['scale']:g}; {data['cause']}")
    with warnings.catch_warnings(), guard.off():
        warnings.simplefilter("ignore")
        for precision in args.precision or ["float32", data["dtype"]]:
            done = capsule.replay(data, make_model, loss_fn, precision, args.scale)
            print(done)
            if args.operators or done.found.findings:
                print("\n".join(f"  {line}" for line in done.found.report().splitlines()))
    return 0


def _functions(path: str, names: Any) -> list:
    """The script's functions, with ampc in torch's place."""
    from ..run.script import load

    module = load(path, "_ampc_replayed")
    for name in (names["make_model"], names["loss_fn"]):
        if not callable(getattr(module, name, None)):
            raise ValueError(f"{path} has no function {name}, which the capsule names; are they under `if __name__ == '__main__':`?")
    return [getattr(module, names["make_model"]), getattr(module, names["loss_fn"])]
