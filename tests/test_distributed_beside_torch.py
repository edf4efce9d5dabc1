"""Calls of ampc.distributed in two processes beside torch's on gloo: the same values, or the same kind of error. ``beside_torch_ranks.py`` holds the
programs."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("mpi4py")
pytest.importorskip("torch.distributed")
import beside_torch_ranks
from test_distributed import HERE, start

pytestmark = pytest.mark.cpu


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each rank of both libraries says."""
    folder = tmp_path_factory.mktemp("beside")
    line = [sys.executable, "-W", "ignore", "beside_torch_ranks.py", "torch"]
    running = [subprocess.Popen([*line, str(rank), str(folder)], cwd=HERE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
               for rank in range(2)]
    said = [process.communicate(timeout=60)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    done = start(2, "-W", "ignore", "beside_torch_ranks.py", "ampc", "-", folder)
    assert done.returncode == 0, done.stderr
    return {library: [json.loads((folder / f"{library}{rank}.json").read_text()) for rank in range(2)] for library in ("ampc", "torch")}


@pytest.mark.parametrize("name", [f.__name__ for f in beside_torch_ranks.PROGRAMS])
def test_as_torch(found, name):
    ours, torchs = ([each[name] for each in found[library]] for library in ("ampc", "torch"))
    assert ours == torchs
