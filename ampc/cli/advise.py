"""``ampc advise``: float16, bfloat16 or float32 for a script, by running some of its steps in each."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ._common import examples, must_be_writable


def add_advise(commands: Any) -> None:
    """Adds the subcommand."""
    parser = commands.add_parser("advise", help="run some steps of a script in float32, tf32, bfloat16 and float16, and say which to use",
                                 description="Runs a PyTorch or ampc script in each, for so many backward passes, and compares time, peak "
                                 "memory and losses. A script for several processes runs as the only rank. What the script saves by torch.save, "
                                 "safetensors or torch.distributed.checkpoint is left out, so that its checkpoints stay as they are; what it writes "
                                 "by other means, as by open() or numpy.save, is written. Exits with 0, or 1 where a run fails.",
                                 epilog=examples(
                                     "ampc advise train.py",
                                     "ampc advise --steps 50 train.py --epochs 1    what follows the script is the script's",
                                     "ampc advise --policy keep.json train.py       for autocast(policy=\"keep.json\")"))
    parser.add_argument("--steps", type=int, default=20, help="backward passes in each precision (20)")
    parser.add_argument("--policy", metavar="FILE", help="write the operators to keep in float32, where there are some, for autocast(policy=...)")
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments").required = False
    parser.set_defaults(run=_advise)


def _advise(args: argparse.Namespace) -> int:
    from ..doctor.precision_advisor import advise_script

    if args.steps < 2:
        print("ampc advise: --steps must be 2 or more", file=sys.stderr)
        return 2
    try:
        must_be_writable(args.policy)
        advice = advise_script(args.script, args.args, args.steps, progress=True)
        print(advice)
        if args.policy and advice.policy is not None:
            advice.policy.save(args.policy)
    except BrokenPipeError:  # the reader of the output has left
        raise
    except (OSError, RuntimeError) as error:
        print(f"ampc advise: {error}", file=sys.stderr)
        return 1
    return 0
