"""Pretrained weights: files that torch and Hugging Face's safetensors wrote load here, and models of transformers and timm with them.

The second half runs tests/pretrained_models.py. It needs an environment with transformers and timm and without torch: AMPC_LIBRARIES names
its Python."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import ampc

try:
    import torch
except ImportError:
    torch = None

beside = pytest.mark.skipif(torch is None, reason="torch makes the files")
LIBRARIES = os.environ.get("AMPC_LIBRARIES")
HERE = Path(__file__).resolve().parent


def encoder(lib):
    """An embedding whose weight is the output's, a layer of attention, a convolution, norms with buffers."""
    class Model(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = lib.nn.Embedding(30, 16)
            self.layer = lib.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
            self.mix, self.norm = lib.nn.Conv1d(16, 16, 3, padding=1), lib.nn.BatchNorm1d(16)
            self.out = lib.nn.Linear(16, 30)
            self.out.weight = self.words.weight
            self.register_buffer("places", lib.arange(8))

        def forward(self, x):
            y = self.norm(self.mix(self.layer(self.words(x)).transpose(1, 2))).transpose(1, 2)
            return self.out(y) + self.places[:x.shape[1], None]

    return Model().eval()


def filled(model):
    rng = np.random.default_rng(3)
    with torch.no_grad():
        for name, t in model.state_dict().items():
            if t.is_floating_point():
                values = torch.from_numpy(rng.standard_normal(tuple(t.shape)) / 4)
                t.copy_(values.abs() + 0.5 if name.endswith("running_var") else values)
    return model


WORDS = np.random.default_rng(4).integers(30, size=(2, 8))


def shards(state, folder):
    """Files of safetensors with an index, as Hugging Face cuts large models."""
    from safetensors.torch import save_file

    names = sorted(state)
    index = {}
    for i in range(3):
        part = {name: state[name] for name in names[i::3]}
        save_file(part, folder / f"model-{i}.safetensors", metadata={"format": "pt"})
        index.update(dict.fromkeys(part, f"model-{i}.safetensors"))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def read_shards(folder):
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    return {name: t for file in sorted(set(index.values())) for name, t in ampc.load(folder / file).items()}


@beside
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("how", ["zip", "safetensors", "shards"])
def test_weights_of_torch_load_here(how, dtype, tmp_path):
    theirs = filled(encoder(torch)).to(getattr(torch, dtype))
    state = {name: t for name, t in theirs.state_dict().items() if name != "out.weight" or how == "zip"}
    if how == "zip":
        torch.save(state, tmp_path / "model.bin")
    elif how == "shards":
        shards(state, tmp_path)
    else:
        from safetensors.torch import save_file

        save_file(state, tmp_path / "model.safetensors")
    found = read_shards(tmp_path) if how == "shards" else ampc.load(tmp_path / ("model.bin" if how == "zip" else "model.safetensors"))
    with ampc.device("meta"):
        ours = encoder(ampc)
    missing, unexpected = ours.load_state_dict(found, strict=False, assign=True)
    assert missing == ([] if how == "zip" else ["out.weight"]) and unexpected == []
    ours.out.weight = ours.words.weight
    assert ours.words.weight.dtype is getattr(ampc, dtype)
    for name, t in theirs.state_dict().items():
        assert ours.state_dict()[name].tolist() == t.tolist(), name
    with torch.no_grad(), ampc.no_grad():
        want = theirs.float()(torch.from_numpy(WORDS)).numpy()
        got = ours.float()(ampc.from_numpy(WORDS)).numpy()
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()


@pytest.mark.skipif(LIBRARIES is None or torch is None, reason="AMPC_LIBRARIES is not set, or there is no torch")
def test_models_of_libraries(tmp_path):
    """Made by torch, loaded and saved by ampc, loaded by torch."""
    places = {"torch": Path(torch.__file__).parent.parent, "ampc": Path(ampc.__file__).parent.parent}
    for step, folder, library in (("make", tmp_path, "torch"), ("check", tmp_path, "ampc"), ("check", tmp_path / "again", "torch")):
        done = subprocess.run([LIBRARIES, "-W", "ignore", str(HERE / "pretrained_models.py"), step, str(folder), library, str(places[library])],
                              capture_output=True, text=True, env={**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, "HF_HUB_OFFLINE": "1"})
        assert done.returncode == 0, f"{step} under {library}:\n{done.stderr[-3000:]}"
