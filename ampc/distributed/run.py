"""``torchrun`` and ``python -m torch.distributed.run`` under ``ampc run``: several processes of a script on this host, by mpiexec."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from .._names.missing import absent_from
from .._process import launcher as _launcher
from . import _arrival
from ._hostfile import hosts_of, names_of

__all__ = ["get_args_parser", "main", "parse_args", "run"]

MOST_A_CORE = 4  # processes; a start of more is told to be slow
SECONDS_TO_END = 5  # for mpiexec, after Ctrl-C

# torchrun's options that say how its processes find each other, which MPI does here.
_OTHERS = ("rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "monitor-interval", "start-method", "role", "log-dir",
           "redirects", "tee", "local-ranks-filter", "node-rank", "master-addr", "master-port", "local-addr")


def _both(name: str) -> List[str]:
    return list(dict.fromkeys([f"--{name}", "--" + name.replace("-", "_")]))


def get_args_parser() -> argparse.ArgumentParser:
    """Of torchrun's command line."""
    parser = argparse.ArgumentParser(prog="torchrun", description="Runs a script in several processes of this host, which MPI connects.",
                                     epilog="Options about meeting points, monitoring and logs are accepted and change nothing.")
    parser.add_argument(*_both("nproc-per-node"), default="1", help="a number of processes, or cpu, gpu or auto: one for each core or GPU")
    parser.add_argument("--nnodes", default="1", help="1; several hosts are started by mpiexec with its own list of hosts")
    parser.add_argument(*_both("max-restarts"), type=int, default=0, help="how often all processes are started again after one of them has failed")
    parser.add_argument("--standalone", action="store_true", help="changes nothing: there is one host")
    for name in _OTHERS:
        parser.add_argument(*_both(name), help=argparse.SUPPRESS)
    parser.add_argument("-m", "--module", action="store_true", help="the script is the name of a module")
    parser.add_argument("--no-python", "--no_python", action="store_true", help="the script is a program, and no file of Python")
    parser.add_argument("training_script", metavar="script", help="what each process runs")
    parser.add_argument("training_script_args", metavar="args", nargs=argparse.REMAINDER, help="its arguments").required = False
    return parser


def parse_args(args: Optional[List[str]] = None) -> argparse.Namespace:
    """The command line, read."""
    return get_args_parser().parse_args(args)


def _count(text: str) -> int:
    """How many processes are asked for. ValueError for what is no number and no word for one."""
    from .. import cuda

    gpus = cuda.device_count() if text in ("gpu", "auto") else 0
    if text == "gpu" and not gpus:
        raise ValueError("torchrun: --nproc-per-node gpu: there is no GPU")
    if text in ("cpu", "gpu", "auto"):
        return gpus or os.cpu_count() or 1
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"torchrun: --nproc-per-node must be a number from 1 on, cpu, gpu or auto, got {text!r}")
    return int(text)


def program(script: str, args: List[str], module: bool = False, options: Any = ()) -> List[str]:
    """The command line of one process."""
    return [sys.executable, "-m", "ampc", "run", *options, *(["-m"] if module else []), script, *args]


def start_all(nproc: int, command: List[str], max_restarts: int = 0, hostfile: Optional[str] = None) -> int:
    """Runs a command line in so many processes, of this host or of those in ``hostfile``, and returns mpiexec's exit status; 2 where they cannot be
    started, which is told. Where it is not 0, all are started again, so often at most; TORCHELASTIC_RESTART_COUNT says how often they were. SIGINT
    and SIGTERM end them for good; on Linux they end with this process, however it ends."""
    try:
        line = _launcher.command(nproc, command, hostfile)
        on_a_host = nproc if hostfile is None else -(-nproc // hosts_of(hostfile, nproc, _launcher.is_open_mpi(line[0])))
    except _launcher.CannotStart as error:
        print(f"ampc run: {error}", file=sys.stderr)
        return 2
    cores = os.cpu_count() or 1
    if hostfile is None and nproc > MOST_A_CORE * cores:
        print(f"ampc run: {nproc} processes share {cores} cores; each waits for the others in turn, so this may take very long",
              file=sys.stderr, flush=True)
    variables = {**_launcher.environment(on_a_host, os.environ), "TORCHELASTIC_MAX_RESTARTS": str(max_restarts)}
    server = None
    if hostfile is not None:
        server, variables[_arrival.MEETING] = _arrival.listen_for_ranks(_own_addresses(names_of(hostfile, _launcher.is_open_mpi(line[0]))))
    for count in range(max_restarts + 1):
        status, wanted = _run_once(line, {**variables, "TORCHELASTIC_RESTART_COUNT": str(count)})
        if status == 0 or wanted or count == max_restarts:
            break
        print(f"ampc run: the processes have ended with status {status}; restart {count + 1} of {max_restarts}", file=sys.stderr, flush=True)
    if server is not None:
        server.close()
    return status


def _own_addresses(hosts: List[str]) -> List[str]:
    """This host's addresses, as these hosts see it."""
    found: List[str] = []
    for host in hosts:
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host.rpartition("@")[2], 9))  # nothing is sent
            found.append(probe.getsockname()[0])
    return sorted(set(found), key=lambda address: address.startswith("127.")) or ["127.0.0.1"]


def _end_with_parent() -> None:
    """This process gets SIGTERM when the one that has started it is gone, be it killed."""
    import ctypes

    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _run_once(line: List[str], variables: Dict[str, str]) -> Tuple[int, bool]:
    """mpiexec's exit status, and whether somebody has asked for the end."""
    asked: List[int] = []
    with subprocess.Popen(_launcher.started(line), env=variables, preexec_fn=_end_with_parent if sys.platform == "linux" else None) as running:
        def end(number: int, frame: Any) -> None:
            asked.append(number)
            running.terminate()

        before = signal.signal(signal.SIGTERM, end)
        try:
            return running.wait(), bool(asked) or running.returncode < 0  # below 0: somebody has killed mpiexec
        except KeyboardInterrupt:  # by Ctrl-C mpiexec has got it, too, and ends the processes; of kill(1) it knows nothing
            try:
                running.wait(SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                running.terminate()
                running.wait()
            return 130, True
        finally:
            signal.signal(signal.SIGTERM, before)
            shutil.rmtree(os.path.join(tempfile.gettempdir(), f"ompi.{running.pid}"), ignore_errors=True)  # Open MPI's, where it was killed


def run(args: argparse.Namespace) -> int:
    """Starts the processes. ValueError for several hosts, or for numbers of processes or restarts that are none."""
    if str(args.nnodes).split(":")[-1] != "1":
        raise ValueError(f"torchrun: --nnodes {args.nnodes}: start all hosts from one of them, as in "
                         "`ampc run --nproc 8 --hostfile hosts train.py`")
    if args.max_restarts < 0:
        raise ValueError(f"torchrun: --max-restarts must be a number from 0 on, got {args.max_restarts}")
    given = [args.training_script, *args.training_script_args]
    command = given if args.no_python else program(given[0], given[1:], args.module)
    return start_all(_count(str(args.nproc_per_node)), command, args.max_restarts)


def main(args: Optional[List[str]] = None) -> None:
    """The program: SystemExit with its status."""
    try:
        sys.exit(run(parse_args(args)))
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)

if __name__ == "__main__":
    main()
