"""A program that mpiexec starts in the place of a process that it has not started: it hands over the variables by which MPI knows a rank, and lives
as long as the process that took them. It runs by its path, without ampc: ``python stand_in.py FOLDER [PROCESS]``. So it imports nothing of the
package, which has from here whether a process lives."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from typing import Any, Optional


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


def _of_the_system(pid: int) -> Any:
    """What Linux says of a process, from its state on; empty for none, and on other systems."""
    return (read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()


def process_of(pid: int) -> str:
    """A process' number and when it has begun, which no later process of that number has."""
    said = _of_the_system(pid)
    return f"{pid}-{said[19]}" if len(said) > 19 else str(pid)


def lives(process: str) -> bool:
    """Whether a process of this host runs, by ``process_of`` or by its number alone. One that has ended does not, whoever may wait for it."""
    number, _, begun = process.partition("-")
    if os.name == "nt":  # os.kill would end it
        return True
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    said = _of_the_system(int(number))
    return len(said) <= 19 or said[0] not in "ZX" and begun in ("", said[19])


def main(folder: str, starter: str) -> None:
    """Waits for the process of this rank, and then for its end. The folder ends with whoever made it: the process ``starter``, for which rank 0's
    removes it, or with '' another one, which does so itself. mpiexec's SIGTERM, when another rank has died, is such an end, too."""
    rank = os.environ["OMPI_COMM_WORLD_RANK"]
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    variables = {k: v for k, v in os.environ.items() if k.startswith(("PMIX_", "OMPI_", "OPAL_", "PRTE_"))}
    try:
        put(os.path.join(folder, f"rank{rank}.json"), json.dumps(variables))
        taken = None
        while taken is None and os.path.isdir(folder) and (not starter or lives(starter)):
            taken = read(os.path.join(folder, f"rank{rank}.pid"))
            time.sleep(0.02)
        while taken is not None and lives(taken):
            time.sleep(0.1)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if starter and rank == "0":
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], (sys.argv[2:] or [""])[0])
