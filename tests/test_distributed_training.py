"""Training on 2 and 4 ranks: the configuration's fields, checkpoints, restarts, spawned ranks, and the guard's rules about ranks."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("mpi4py")
import trainer_ranks

import ampc
from ampc import _launcher as launch

pytestmark = pytest.mark.cpu
if launch.mpiexec() is None:
    pytest.skip("there is no mpiexec", allow_module_level=True)
HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(ampc.__file__))
CASES = [(size, name) for name, (sizes, _) in trainer_ranks.PROGRAMS.items() for size in sizes]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each rank says of each program, by the number of processes; each number is started once."""
    kept = {}

    def get(size):
        if size not in kept:
            folder = tmp_path_factory.mktemp(f"ranks{size}")
            command = launch.command(size, [sys.executable, "trainer_ranks.py", str(folder)])
            done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, timeout=300, env=launch.environment(size, os.environ))
            kept[size] = done, [json.loads((folder / f"{r}.json").read_text()) if (folder / f"{r}.json").exists() else {} for r in range(size)]
        return kept[size]

    return get


@pytest.mark.parametrize("size, name", CASES)
def test_ranks(found, size, name):
    done, said = found(size)
    for rank in range(size):
        assert name in said[rank], f"rank {rank} did not come to it: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        assert not said[rank][name][0], f"rank {rank}: {said[rank][name][0]}"
