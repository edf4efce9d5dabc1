"""docs/compatibility.md says what the code has; public programs come to the losses that torch came to."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
KEPT = json.loads((ROOT / "docs" / "compatibility" / "programs.json").read_text())
MODULE = {"vit-pytorch": "vit_pytorch", "resnet-pytorch": "resnet_pytorch", "x-transformers": "x_transformers", "conv-lstm": "conv_lstm", "pytorch-nlp": "torchnlp",
          "dcgan-pytorch": "dcgan_pytorch", "vector-quantize-pytorch": "vector_quantize_pytorch", "info-nce-pytorch": "info_nce", "pytorch-ignite": "ignite",
          "pytorch-metric-learning": "pytorch_metric_learning", "siren-pytorch": "siren_pytorch", "stable-baselines3": "stable_baselines3"}


def test_the_document_is_up_to_date():
    got = subprocess.run([sys.executable, str(ROOT / "tools" / "compatibility.py"), "--check"], capture_output=True, text=True)
    assert got.returncode == 0, got.stdout + got.stderr


def test_twelve_programs_and_more():
    kinds = {p["name"] for p in KEPT["programs"]}
    assert len(kinds) >= 12 and all(len(p["seeds"]) == 3 for p in KEPT["programs"])
    for p in KEPT["programs"]:
        for s in p["seeds"]:
            assert len(s["ampc"]) == len(s["torch"]) and abs(s["ampc"][0] - s["torch"][0]) <= 1e-3 * max(abs(s["torch"][0]), 1)


@pytest.mark.slow
@pytest.mark.parametrize("program", KEPT["programs"], ids=[p["name"] for p in KEPT["programs"]])
def test_programs(program):
    """The first loss is torch's, as it was kept, but for the order of additions; where the package is installed."""
    if importlib.util.find_spec(MODULE.get(program["package"], program["package"])) is None:
        pytest.skip(f"{program['package']} is not installed")
    place = ROOT / "tests" / "programs"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place / "stand_ins"), *filter(None, [os.environ.get("PYTHONPATH")])]), "DIGITS": str(ROOT / "ampc" / "data" / "digits.npz")}
    got = subprocess.run([sys.executable, "-m", "ampc", "run", str(place / "programs.py"), program["name"], "0"], capture_output=True, text=True, env=env, cwd=place)
    assert got.returncode == 0, got.stderr
    assert "MisuseWarning" not in got.stderr, got.stderr  # none of them misuses a scaler or autocast
    losses, kept = json.loads(got.stdout.strip().split("\n")[-1]), program["seeds"][0]["torch"]
    assert len(losses) == len(kept) and abs(losses[0] - kept[0]) <= 1e-3 * max(abs(kept[0]), 1)
