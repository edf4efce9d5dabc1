"""Every example runs in a process of its own, quietly; what it shows, it asserts itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from where import ON_GPU

import ampc

EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "examples").glob("*.py"))
SAYS = {"recipe.py": "with GradScaler", "gradient_penalty.py": "|gradient|", "accumulation.py": "12 steps", "several_optimizers.py": "scale 65536",
        "custom_function.py": "gradients in ampc.float32", "checkpointing.py": "with checkpoints", "keras_style.py": "float16 products",
        "trainer.py": "2 fallbacks", "distributed.py": "on 1 process",
        "numpy_in_out.py": "weights [[1.0, -2.0, 0.5]]"}


def test_they_follow_the_rules():
    from ampc.check import check_file
    assert [str(found) for path in EXAMPLES for found in check_file(path)] == []


def test_all_are_listed():
    assert {p.name for p in EXAMPLES} == set(SAYS)


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_it_runs(path, tmp_path):
    if path.name == "distributed.py":  # test_distributed.py runs it in two processes
        pytest.importorskip("mpi4py")
    env = {**os.environ, "PYTHONPATH": str(Path(ampc.__file__).parent.parent)}
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, cwd=tmp_path, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    assert SAYS[path.name] in done.stdout and "Traceback" not in done.stderr
