"""``ampc bench``: whether mixed precision pays, for a built-in model or a file's."""

from __future__ import annotations

import argparse
import sys
import tokenize
from typing import Any, Callable, Optional

from ._common import examples, must_be_writable


def add_bench(commands: Any) -> None:
    """Adds the subcommand."""
    parser = commands.add_parser(
        "bench", help="time, memory and error of steps in float32, tf32, bfloat16 and float16", description="Measures steps of a model. A file "
        "has functions make_model() and make_batch(), and may have loss_fn(output, target) (else cross_entropy) and make_optimizer(parameters) (else "
        "SGD). Exits with 0, or 1 where a model fails.",
        epilog=examples("ampc bench", "ampc bench cnn gpt --batch 16                      two built-in models",
                        "ampc bench my_model.py --json out.json             a model of yours",
                        "ampc bench lstm --steps 30 --picture lstm.png"))
    parser.add_argument("models", nargs="*", default=["mlp"], help="mlp, cnn, gpt, lstm, or files (mlp)")
    parser.add_argument("--batch", type=int, help="samples in a batch of the built-in models")
    parser.add_argument("--steps", type=int, default=10, help="in each precision, at least (10)")
    parser.add_argument("--json", metavar="FILE", help="write the numbers, a list of a model each")
    parser.add_argument("--picture", metavar="FILE", help="draw the last model's (needs matplotlib)")
    parser.set_defaults(run=_bench)


def _bench(args: argparse.Namespace) -> int:
    from ..bench import bench, built_in

    done = []
    if args.batch is not None and args.batch < 1:
        print(f"ampc bench: --batch must be 1 or more, got {args.batch}", file=sys.stderr)
        return 1
    try:
        must_be_writable(args.json, args.picture)
        for name in args.models:
            made = _of_file(name) if name.endswith(".py") else built_in(name, args.batch)
            done.append(bench(*made, steps=args.steps, name=name, progress=True))
            print(done[-1])
        if args.json:
            with open(args.json, "w", encoding="utf-8") as f:
                f.write("[" + ",\n".join(found.to_json() for found in done) + "]\n")
        if args.picture:
            done[-1].save(args.picture)
    except BrokenPipeError:  # the reader of the output has left
        raise
    except (ImportError, OSError, RuntimeError, SyntaxError, TypeError, ValueError) as error:
        print(f"ampc bench: {error}", file=sys.stderr)
        return 1
    return 0


def _need_functions(path: str, has: Callable[[str], bool]) -> None:
    """ValueError where the file lacks a function."""
    for name in ("make_model", "make_batch"):
        if not has(name):
            raise ValueError(f"{path} has no function {name}(); a file to measure has make_model() and make_batch(), and a whole script runs under "
                             f"`ampc advise {path}`")


def _of_file(path: str) -> tuple:
    from .. import nn, optim
    from ..run.script import load

    with tokenize.open(path) as f:
        text = f.read()
    _need_functions(path, lambda name: name in text or "import *" in text)  # before the file's code runs
    module = load(path, "_ampc_benched")
    _need_functions(path, lambda name: callable(getattr(module, name, None)))
    model, batch = module.make_model(), module.make_batch()
    if not isinstance(model, nn.Module):
        raise TypeError(f"{path}: make_model() must give a Module, got {type(model).__name__}")
    loss_fn: Optional[Any] = getattr(module, "loss_fn", None)
    make_optimizer = getattr(module, "make_optimizer", lambda parameters: optim.SGD(parameters, lr=1e-3))
    return model, batch, loss_fn or nn.CrossEntropyLoss(), make_optimizer(model.parameters())
