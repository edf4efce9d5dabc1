"""Capsules of bad steps, and running them again."""

import math
import pickle
import subprocess
import sys
import warnings

import pytest
from where import ON_GPU

import ampc as torch
from ampc import doctor
from ampc.doctor import capsule

KIND = "cuda" if ON_GPU else "cpu"
SCRIPT = """
import torch

def make_model():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1))

def loss_of(model, batch):
    return (model(batch["x"]).float() ** batch["power"]).mean()

if __name__ == "__main__":
    raise SystemExit("a replay does not run this")
"""


def make_model():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1))


def loss_of(model, batch):
    return (model(batch["x"]).float() ** batch["power"]).mean()


def train(folder, bad=(3,), steps=6, **options):
    torch.manual_seed(0)
    model = make_model()
    opt, scaler = torch.optim.SGD(model.parameters(), lr=0.01), torch.amp.GradScaler(KIND, init_scale=2.0**10)
    capsules = doctor.Capsules(folder, model, scaler, make_model, loss_of, **options)
    for i in range(steps):
        batch = {"x": torch.randn(4, 8) * (1e5 if i in bad else 1), "power": 2}
        with capsules(batch):
            opt.zero_grad()
            with torch.autocast(KIND, dtype=torch.float16):
                loss = loss_of(model, batch)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
    return capsules, batch


def test_a_skipped_step_is_kept_and_run_again(tmp_path):
    capsules, _ = train(tmp_path / "capsules")
    (path,) = capsules.written
    assert path.endswith("step-4.ampc")
    data = capsule.read(path)
    assert data["batch"]["x"].shape == (4, 8) and data["batch"]["power"] == 2 and data["scale"] == 1024.0 and "loss itself is" in data["cause"]
    state = torch.get_rng_state().tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = doctor.replay(data, make_model, loss_of, "float32")
        half = doctor.replay(data, make_model, loss_of, "float16")
        again = doctor.replay(data, make_model, loss_of, "float16")
    assert torch.get_rng_state().tolist() == state
    assert math.isfinite(plain.loss) and plain.bad == {} and plain.norm > 0 and plain.found.findings == []
    assert not math.isfinite(half.loss) and set(half.bad) == {"0.weight", "0.bias", "2.weight", "2.bias"} and str(half) == str(again)
    finding = half.found.findings[0]
    assert finding.op == "linear" and "too large for float16" in str(finding) and finding.location[0] == __file__


def test_the_same_random_numbers(tmp_path):
    """Dropout leaves out the same values: the loss of an applied step is the same to the last bit."""
    capsules, _ = train(tmp_path, bad=(0,), steps=1)
    data = capsule.read(capsules.written[0])
    data["batch"]["x"] = data["batch"]["x"] / 1e5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        losses = {doctor.replay(data, make_model, loss_of, "float16").loss for _ in range(3)}
    assert len(losses) == 1 and math.isfinite(losses.pop())


def test_so_many_and_no_more(tmp_path):
    capsules, _ = train(tmp_path, bad=range(6), most=2)
    assert len(capsules.written) == len(list(tmp_path.glob("*.ampc"))) == 2
    assert train(tmp_path / "none", bad=())[0].written == [] and not (tmp_path / "none").exists()


def test_bad_calls(tmp_path):
    model, scaler = make_model(), torch.amp.GradScaler(KIND)
    with pytest.raises(ValueError, match="`loss_fn` must be a function of the script's top level"):
        doctor.Capsules(tmp_path, model, scaler, make_model, lambda m, b: m(b))
    torch.save({"a": 1}, tmp_path / "other.ampc")
    with pytest.raises(ValueError, match="not a capsule"):
        capsule.read(tmp_path / "other.ampc")
    (tmp_path / "pickled").write_bytes(pickle.dumps({"capsule": 1}))
    with pytest.raises(ValueError, match="pickled: not a capsule"):
        capsule.read(tmp_path / "pickled")
    torch.save({"capsule": 1, "batch": 0, "scale": 1.0}, tmp_path / "half.ampc")
    with pytest.raises(ValueError, match="lacks rng, model, training, dtype, names"):
        capsule.read(tmp_path / "half.ampc")


@pytest.mark.skipif(ON_GPU, reason="the process is on the CPU")
def test_the_command(tmp_path):
    capsules, _ = train(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)

    def command(*args):
        return subprocess.run([sys.executable, "-m", "ampc.cli", "replay", *args], capture_output=True, text=True)
    done = command(capsules.written[0], "--script", str(script))
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[0].startswith("step 4: loss") and lines[1].startswith("float32   loss ") and "are finite" in lines[1]
    assert lines[2].startswith("float16   loss ") and "train.py:8: linear returned" in lines[3]
    done = command(capsules.written[0], "--script", str(script), "--precision", "float32", "--operators")
    assert "no operator returned inf or nan" in done.stdout and "float16 " not in done.stdout
    script.write_text("import torch\n")
    done = command(capsules.written[0], "--script", str(script))
    assert done.returncode == 2 and "has no function make_model" in done.stderr
    (tmp_path / "text").write_text("a file of something else")
    done = command(str(tmp_path / "text"), "--script", str(script))
    assert done.returncode == 2 and "not a capsule" in done.stderr and "Traceback" not in done.stderr
    assert command(str(tmp_path / "absent"), "--script", str(script)).returncode == 2


@pytest.mark.skipif(ON_GPU, reason="the process is on the CPU")
def test_a_script_that_trains_while_it_is_imported_is_stopped(tmp_path):
    """Of a script without a guard, what was defined before its training is used, and nothing is trained or written."""
    capsules, _ = train(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT[:SCRIPT.index("if __name__")] + """
model = make_model()
try:
    for step in range(10**9):
        loss = loss_of(model, {"x": torch.ones(4, 8), "power": 2})
        loss.backward()
        open("trained", "w").close()
except Exception:
    pass
""")
    done = subprocess.run([sys.executable, "-m", "ampc.cli", "replay", capsules.written[0], "--script", str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=100)
    assert done.returncode == 0 and done.stdout.splitlines()[1].startswith("float32   loss "), done.stderr
    assert "train.py trains while it is imported; it was stopped at its first backward pass" in done.stderr and not (tmp_path / "trained").exists()
    script.write_text("import torch\ntorch.ones(1, requires_grad=True).sum().backward()\ndef make_model():\n    pass\n")
    done = subprocess.run([sys.executable, "-m", "ampc.cli", "replay", capsules.written[0], "--script", str(script)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 2 and "trains while it is imported" in done.stderr and "has no function make_model" in done.stderr
