"""A program that mpiexec starts in the place of a process that it has not started: it hands over the variables by which MPI knows a rank, and lives
as long as the process that took them. It runs by its path, without ampc: ``python _stand_in.py FOLDER [PID]``."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from typing import Optional


def put(path: str, text: str) -> None:
    """The file is there when it is whole."""
    with open(path + ".partial", "w") as f:
        f.write(text)
    os.replace(path + ".partial", path)


def read(path: str) -> Optional[str]:
    """The text; None where there is no such file, or no longer."""
    try:
        with open(path) as f:
            return f.read()
    except OSError:
        return None


def lives(pid: int) -> bool:
    """Whether a process of this host runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def main(folder: str, starter: int) -> None:
    """Waits for the process of this rank, and then for its end. The folder ends with whoever made it: the process ``starter``, for which rank 0's
    removes it, or with 0 another one, which does so itself."""
    rank = os.environ["OMPI_COMM_WORLD_RANK"]
    put(os.path.join(folder, f"rank{rank}.json"), json.dumps({k: v for k, v in os.environ.items() if k.startswith(("PMIX_", "OMPI_", "PRTE_"))}))
    taken = None
    while taken is None and os.path.isdir(folder) and (not starter or lives(starter)):
        taken = read(os.path.join(folder, f"rank{rank}.pid"))
        time.sleep(0.02)
    while taken is not None and lives(int(taken)):
        time.sleep(0.1)
    if starter and rank == "0":
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], int((sys.argv[2:] or ["0"])[0]))
