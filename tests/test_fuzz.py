"""Programs drawn anew in every run, each beside torch. `make soak` runs a million."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import references

HERE = Path(__file__).resolve().parent
PROGRAMS = int(os.environ.get("AMPC_PROGRAMS", "3000"))


def fuzz(*args):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])}
    got = subprocess.run([sys.executable, "-m", "fuzz", *map(str, args)], capture_output=True, text=True, env=env, cwd=HERE)
    assert got.returncode == 0, got.stdout[-6000:] + got.stderr[-2000:]
    return got.stdout


def test_programs_beside_torch(torch, on_gpu):
    """python -m fuzz --seed S --first N --programs 1, in this folder, repeats one that differs."""
    if on_gpu:
        said = fuzz("--programs", PROGRAMS // 10, "--seed", references.DRAWN, "--jobs", 2, "--device", "cuda")
    else:
        said = fuzz("--programs", PROGRAMS, "--seed", references.DRAWN, "--jobs", 2)
    assert "0 unexplained" in said


@pytest.mark.cpu
def test_a_seed_draws_the_same_programs(torch):
    assert fuzz("--show", "--programs", 5, "--seed", 1) == fuzz("--show", "--programs", 5, "--seed", 1) != fuzz("--show", "--programs", 5, "--seed", 2)


@pytest.mark.cpu
def test_a_difference_is_found_and_shrunk(torch):
    """A library that is torch but for one operator: its program comes down to a line of tensor and a line of that."""
    from types import ModuleType

    from fuzz.drawing import draw
    from fuzz.running import check
    from fuzz.shrink import shrunk

    import torch.utils.checkpoint

    wrong = ModuleType("wrong")
    wrong.__dict__.update(torch.__dict__, exp=lambda x: torch.exp(x) * 1.01, __name__="wrong")
    for index in range(400):
        program, expected = draw(torch, 1, index)
        found = check(program, torch, wrong, expected)
        if found is not None:
            break
    small = shrunk(found, torch, wrong)
    assert found.kind == small.kind == "value" and len(small.program.steps) == 2 and "torch.exp(" in small.program.steps[1].source
    assert not any(check(draw(torch, 1, i)[0], torch, torch) for i in range(100))
