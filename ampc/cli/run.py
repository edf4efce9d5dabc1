"""``ampc run``: a script for torch, unmodified, on ampc."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from ._common import examples


def add_run(commands: Any) -> None:
    """Adds the subcommand."""
    parser = commands.add_parser("run", help="run a script written for torch, unmodified",
                                 description="Runs a script, a module or an installed program with ampc in torch's place, also in the processes "
                                 "of Python that it starts. Exits with its own status.",
                                 epilog=examples("ampc run train.py --epochs 3            what follows the script is the script's",
                                                 "ampc run -m package.train --lr 3        a module, as by python -m",
                                                 "ampc run accelerate launch train.py     a program that a package has installed",
                                                 "ampc run --nproc 2 train.py             in two processes, by mpiexec",
                                                 "ampc run --nproc 2 --max-restarts 3 train.py   started again when a process has failed",
                                                 "ampc run --doctor train.py              traces the first inf or nan to its operator",
                                                 "ampc run --device cpu train.py          without the GPU",
                                                 "ampc run --api train.py model.py        which names of torch are missing, without running"))
    parser.add_argument("--api", action="store_true",
                        help="only read the script and the packages that it imports, and list the names of torch that ampc lacks or refuses")
    parser.add_argument("--device", choices=["cpu"], help="cpu: the script sees no GPU")
    parser.add_argument("--doctor", action="store_true", help="check every operator, and name the first that returns inf or nan from finite inputs")
    parser.add_argument("--nproc", type=_count, metavar="N", help="run it in N processes, which ampc.distributed connects; each line of output "
                        "begins with its process' rank")
    parser.add_argument("--max-restarts", type=int, metavar="K", help="with --nproc: start all processes again, K times at most, after one of them "
                        "has failed; the script goes on from its last checkpoint")
    parser.add_argument("--hostfile", metavar="FILE", help="with --nproc: spread the processes over the hosts of a file for mpiexec, which starts "
                        "them by ssh; by default this host")
    parser.add_argument("-m", dest="module", action="store_true", help="run a module by its name, as python -m does")
    parser.add_argument("script", metavar="program", help="a script, a folder with a __main__.py, an installed program of Python, or after -m a "
                        "module; with --api several files")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments").required = False
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    if args.api:
        return _api(args)
    if args.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # read when CUDA is first asked for
    from .._process import launcher as _launcher
    from ..run import programs, ranks, script

    if args.nproc is not None:
        return _start(args)
    for name in ("max_restarts", "hostfile"):
        if getattr(args, name) is not None:
            print(f"ampc run: --{name.replace('_', '-')} is for several processes; give it with --nproc", file=sys.stderr)
            return 2
    if _launcher.set_variables() > 1:
        ranks.mark_lines()
    find = programs.of_module if args.module else programs.of_name
    if args.doctor:
        from ..doctor.nonfinite import Doctor

        with Doctor() as doctor:
            try:
                return script.run(args.script, args.args, find)
            finally:
                print(f"ampc.doctor: {doctor.closing()}", file=sys.stderr)
    return script.run(args.script, args.args, find)


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, got {text!r}")
    return int(text)


def _start(args: argparse.Namespace) -> int:
    from .._process import launcher as _launcher
    from ..distributed.run import program, start_all
    from ..run import programs

    if _launcher.rank_of_mpi() is not None or (_launcher.size() or 1) > 1:  # a single process of srun, or a job's script, may start others
        print("ampc run: --nproc within a process that a launcher has started; use one of them", file=sys.stderr)
        return 2
    restarts = args.max_restarts or 0
    if restarts < 0:
        print(f"ampc run: --max-restarts must be a number from 0 on, got {restarts}", file=sys.stderr)
        return 2
    if not args.module and args.hostfile is None:
        try:
            programs.of_name(args.script)
        except programs.NotFound as error:  # before each process says so
            print(f"ampc run: {error}", file=sys.stderr)
            return error.status
    options = [*(["--device", args.device] if args.device else []), *(["--doctor"] if args.doctor else [])]
    return start_all(args.nproc, program(args.script, args.args, args.module, options), restarts, args.hostfile)


def _api(args: argparse.Namespace) -> int:
    from ..run import packages

    if args.module:
        print("ampc run: --api reads files; give it the file of the module, without -m", file=sys.stderr)
        return 2
    return packages.report([args.script, *args.args])
