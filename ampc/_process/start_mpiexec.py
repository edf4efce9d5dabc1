"""A program that becomes Open MPI's mpiexec, as ``python start_mpiexec.py mpiexec …``. It imports nothing of the package.

mpiexec keeps a folder for temporary files, named by its process' number. It cannot start where that of a killed one, which had the same number, is
still there, so it is removed first: no process but this one has the number."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile


def main(line: list) -> None:
    """Does not return."""
    shutil.rmtree(os.path.join(tempfile.gettempdir(), f"ompi.{os.getpid()}"), ignore_errors=True)
    os.execv(line[0], line)


if __name__ == "__main__":
    main(sys.argv[1:])
