"""doctor.advise: what it measures, what it leaves as it was, and how it chooses."""

import math
import pathlib
import subprocess
import sys

import pytest
from where import ON_GPU

import ampc as torch
from ampc import doctor
from ampc.doctor.fp32_shadow import OperatorError
from ampc.doctor.precision_advisor import Advice, Trial, advise_script


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 4))


def a_batch():
    return torch.randn(16, 32), torch.randint(0, 4, (16,))


def test_it_measures_and_puts_everything_back():
    net, batch = model(), a_batch()
    opt = torch.optim.AdamW(net.parameters())
    torch.nn.functional.cross_entropy(net(batch[0]), batch[1]).backward()
    opt.step()
    opt.zero_grad()
    before = [p.tolist() for p in net.parameters()], str(opt.state_dict()), torch.get_rng_state().tolist()
    doctor.reports(clear=True)
    found = doctor.advise(net, batch, torch.nn.CrossEntropyLoss(), opt, steps=3)
    assert ([p.tolist() for p in net.parameters()], str(opt.state_dict()), torch.get_rng_state().tolist()) == before
    assert doctor.reports() == [] and doctor.guard._State.mode == "warn"
    base, low, half = (found.trials[p] for p in ("float32", "bfloat16", "float16"))
    assert base.gradient_error == 0 and 1e-4 < low.gradient_error < 5e-2 and 1e-5 < half.gradient_error < 5e-3
    assert all(t.seconds > 0 and t.peak_bytes > 0 and len(t.losses) >= 4 for t in (base, low, half))
    assert low.losses[0] == pytest.approx(base.losses[0], rel=2e-2) and 5 < half.room < 20 and low.room > 100
    assert list(found.underflow) == [1.0, 256.0, 65536.0, 2.0**24] and found.underflow[1.0] >= found.underflow[65536.0]
    worst = found.operators["bfloat16"][0]
    assert worst.op == "linear" and 1e-3 < worst.error < 2e-2 and {e.backward_of for e in found.operators["float16"]} > {"", "linear"}
    text = str(found)
    assert "largest rounding errors in bfloat16:" in text and str(worst) in text
    assert found.verdict in text and "bfloat16" in text and "<table>" in found._repr_html_()


def test_kinds_of_batches_and_bad_calls():
    net = torch.nn.Linear(4, 4)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(3, 4)
    for batch in (x, [x], {"input": x}):
        assert len(doctor.advise(net, batch, lambda out: out.square().mean(), opt, steps=2).trials) == (4 if ON_GPU else 3)
    with pytest.raises(ValueError, match="2 or more"):
        doctor.advise(net, x, lambda out: out.mean(), opt, steps=1)
    with pytest.raises(RuntimeError):
        doctor.advise(net, torch.randn(3, 5), lambda out: out.mean(), opt)
    assert doctor.guard._State.mode == "warn"


def test_a_trainings_history_is_told_along():
    p = torch.nn.Linear(2, 1)
    opt, scaler = torch.optim.SGD(p.parameters(), lr=0.1), torch.amp.GradScaler("cuda" if ON_GPU else "cpu")
    scaler.scale(p(torch.ones(1, 2)).sum() * math.inf).backward()
    scaler.step(opt)
    scaler.update()
    found = doctor.advise(p, torch.ones(1, 2), lambda out: out.sum(), opt, steps=2, scaler=scaler)
    assert "1 step, 1 skipped" in str(found)


def trial(precision, seconds=1.0, peak=100, error=0.0, losses=(1.0, 0.9), skipped=0):
    return Trial(precision, seconds, peak, list(losses), error, skipped, 1.0, 10.0, 12.0)


def advice(*trials, amax=1e-3):
    return Advice(list(trials), {1.0: 0.1}, amax, "a machine", "", {})


def test_how_it_chooses():
    base = trial("float32")
    found = advice(base, trial("bfloat16", 0.6, error=0.004), trial("float16", 0.5, error=0.001))
    assert found.precision == "float16" and found.init_scale == 2.0**17 and "GradScaler(init_scale=131072)" in found.verdict
    found = advice(base, trial("bfloat16", 0.6, error=0.004), trial("float16", 0.5, losses=(1.0, math.nan)))
    assert found.precision == "bfloat16" and "0.60 of float32's time" in found.verdict
    found = advice(trial("float32", losses=(1.0, math.nan)), trial("bfloat16", 0.5), trial("float16", 0.5))
    assert "not finite in float32 either" in found.verdict and "in float32 losses are not finite from step 2 on" in str(found)
    found = advice(base, trial("bfloat16", 1.0), trial("float16", 1.2))
    assert found.precision == "float32" and "not worth it" in found.verdict
    big = trial("float32", peak=100_000_000)
    assert advice(big, trial("bfloat16", 1.0, peak=60_000_000), trial("float16", 1.2)).precision == "bfloat16"
    assert advice(big, trial("bfloat16", 4.46, peak=60_000_000), trial("float16", 1.2, peak=60_000_000)).precision == "float32"
    assert advice(base, trial("bfloat16", 1.0, peak=60), trial("float16", 1.0, peak=60)).precision == "float32"  # 40 bytes
    found = advice(base, trial("bfloat16", 0.5, error=0.9), trial("float16", 0.5, skipped=2))
    assert found.precision == "float32" and "differ too much from float32's" in found.verdict and "bfloat16 and float16" in found.verdict


def test_rounds_that_differ_too_much_decide_nothing():
    base = trial("float32")._replace(rounds=(0.7, 1.0, 3.0))
    loose, firm = trial("bfloat16", 0.57)._replace(rounds=(0.4, 0.57, 10.0)), trial("float16", 1.5)._replace(rounds=(1.4, 1.5, 1.6))
    found = advice(base, loose, firm).verdict
    assert found.startswith("Stay in float32 for now: the rounds differ too much") and "bfloat16 0.13 to 14.29" in found and "when the machine is quiet" in found
    assert "is not worth it here" in advice(trial("float32"), trial("bfloat16", 1.1), firm).verdict


def test_memory_is_promised_only_where_it_was_saved():
    base, more = trial("float32"), trial("float16", 1.09, 196)
    found = Advice([base, trial("bfloat16", 1.0), more], {}, 0.0, "a machine", "", {}, without_units=["float16"]).worth
    assert found.endswith("So it can hardly save time here, and this step needs more memory: a step takes in float16 1.09 of float32's time and 1.96 of its memory.")


def test_what_16_bits_are_worth_without_units():
    base, rows = trial("float32"), [trial("bfloat16", 1.03, 71), trial("float16", 0.6, 80)]
    found = Advice([base, *rows], {}, 0.0, "a machine", "", {}, without_units=["bfloat16", "float16"])
    assert found.worth == ("This CPU has no units for bfloat16 and float16, and computes such products in float32. So they can save memory here, but hardly "
                           "time: a step takes in bfloat16 1.03 of float32's time and 0.71 of its memory, and in float16 0.60 of float32's time and 0.80 of "
                           "its memory.")
    assert found.worth in str(found) and "no units for bfloat16" in found._repr_html_()
    found = Advice([base, *rows], {}, 0.0, "a machine", "", {}, without_units=["float16"])
    assert "no units for float16, and" in found.worth and "So it can save" in found.worth and "in bfloat16" not in found.worth
    found = advice(base, *rows)
    assert found.worth == "" and "no units for" not in str(found)


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
def test_a_script_on_a_cpu_without_units(tmp_path, monkeypatch):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    monkeypatch.setenv("AMPC_CPU", "avx2")
    done = command("--steps", "3", str(path), "64")
    assert done.returncode == 0 and "This CPU has no units for bfloat16 and float16" in done.stdout


def test_operators_that_spoil_it_come_as_a_policy():
    class Cancels(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(64, 64), torch.nn.Parameter(torch.full((64, 64), 1.001))

        def forward(self, x):
            return self.a(x).square().mean() + ((self.b @ self.b).sum() - 64.0**3 * 1.001).float() * 1e-3
    net = Cancels()
    opt = torch.optim.SGD(net.parameters(), lr=1e-6)
    from ampc.doctor.precision_advisor import Subject, _mend
    bench = Subject(net, torch.randn(8, 64), lambda out: out, opt, 2)
    policy = _mend(bench, "float16" if ON_GPU else "bfloat16")
    assert policy is not None and dict(policy.operators) == {"mm": "float32"}


SCRIPT = """
import sys
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=float(sys.argv[1]))
for i in range(1000):
    x = torch.randn(8, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(x).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print("not reached")
"""


def command(*args):
    return subprocess.run([sys.executable, "-m", "ampc.cli", "advise", *args], capture_output=True, text=True)


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
def test_a_script_is_run_in_each_precision(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    found = advise_script(str(path), [str(2.0**40)], 6)
    base, low, half = (found.trials[p] for p in ("float32", "bfloat16", "float16"))
    assert all(len(t.losses) == 7 for t in (base, low, half)) and base.gradient_error == 0 and 1e-5 < low.gradient_error < 0.1
    assert half.skipped > 0 and half.final_scale < 2.0**40 and "skipped" in found.history  # what the script's own scaler met
    assert 5 < half.room < 20 and low.room > 100 and {e.op for e in found.operators["float16"]} >= {"linear", "relu"}
    assert set(found.underflow) == {1.0, 256.0, 65536.0, 2.0**24} and 0 < found.amax < 100
    done = command("--steps", "3", str(path), "64")
    assert done.returncode == 0 and "loss error" in done.stdout and "not reached" not in done.stdout + done.stderr
    assert done.stderr.splitlines() == [f"{path}, 3 steps: {p}, round {n} of 3" for n in (1, 2, 3) for p in found.trials]  # no terminal


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
def test_scripts_without_regions_and_scripts_that_fail(tmp_path):
    path = tmp_path / "plain.py"
    path.write_text(SCRIPT.replace('with torch.autocast("cpu", dtype=torch.float16):', "if True:").replace("autocast", ""))
    done = command("--steps", "3", str(path), "1")
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("bfloat16"))
    assert "%" in row and " 0 %" not in row  # a region was put around it
    path.write_text(SCRIPT.replace("scaler.scale(loss)", "loss").replace("scaler.step(optimizer)", "optimizer.step()").replace(
        "scaler.update()", "pass").replace("scaler = ", "unused = "))
    assert "the script does not use a GradScaler" in command("--steps", "3", str(path), "1").stdout
    done = command(str(tmp_path / "absent.py"))
    assert done.returncode == 1 and "there is no file" in done.stderr and "Traceback" not in done.stderr
    path.write_text("import torch\ntorch.ones(2) + torch.ones(3)\n")
    done = command(str(path))
    assert done.returncode == 1 and "failed in float32" in done.stderr and "plain.py" in done.stderr and "shape" in done.stderr
    assert command("--steps", "1", str(path)).returncode == 2


BREAKS = """
import sys
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(100):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
    if i == 4:
        {}
"""


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
@pytest.mark.parametrize(("end", "said"), [("raise ValueError('the data is broken')", "the data is broken"), ("sys.exit('no more data')", "no more data"),
                                           ("sys.exit(3)", "exit status 3")])
def test_a_script_that_fails_after_some_steps(tmp_path, end, said):
    path = tmp_path / "train.py"
    path.write_text(BREAKS.format(end))
    done = command("--steps", "10", str(path))
    assert done.returncode == 1 and said in done.stderr and "failed in float32" in done.stderr and done.stdout == ""
    assert command("--steps", "2", str(path)).returncode == 0  # it ends before that
    path.write_text(BREAKS.format("sys.exit()"))
    assert command("--steps", "10", str(path)).returncode == 0


RANKS = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
dist.init_process_group("gloo")
assert (rank, size, local) == (dist.get_rank(), dist.get_world_size(), 0) == (0, 1, 0)
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(100):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
def test_a_script_for_several_processes_is_the_only_rank(tmp_path):
    pytest.importorskip("mpi4py")
    path = tmp_path / "train.py"
    path.write_text(RANKS)
    done = command("--steps", "2", str(path))
    assert done.returncode == 0 and "loss error" in done.stdout, done.stderr


UNSEEDED = """
import random
import numpy
import torch
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for i in range(8):
    x = torch.from_numpy(numpy.random.randn(8, 16).astype("float32")) + random.random() + torch.rand(8, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
def test_trials_of_a_script_that_does_not_seed_are_alike(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(UNSEEDED)
    found = advise_script(str(path), [], 5)
    assert 0 < found.trials["float16"].gradient_error < 5e-3 and 0 < found.trials["bfloat16"].gradient_error < 3e-2


def test_how_sure_it_is():
    base = trial("float32").timed([1.0, 1.1, 1.3])
    found = advice(base, trial("bfloat16").timed([0.7, 0.9, 1.2]), trial("float16").timed([0.9, 1.0, 1.1]))
    assert found.precision == "float32" and found.verdict.startswith("Stay in float32") and "3 rounds" in found.verdict
    assert "bfloat16 0.54 to 1.20" in found.verdict
    found = advice(base, trial("bfloat16").timed([0.5, 0.6, 0.6]), trial("float16").timed([0.4, 0.5, 0.7]))
    assert found.precision == "bfloat16"  # float16 is not clearly faster
    assert advice(base, trial("bfloat16").timed([0.8, 0.8, 0.8]), trial("float16").timed([0.4, 0.5, 0.5])).precision == "float16"


def operator(op, error, amax, dtype="float16"):
    return OperatorError(op, ("train.py", 7), dtype, "", error, amax, 1)


def test_nothing_is_won_where_every_product_stays_in_float32():
    rows = [trial("float32"), trial("bfloat16", 1.0), trial("float16", 0.5)]
    found = Advice(rows, {1.0: 0.1}, 1e-3, "a machine", "", {"float16": [operator("linear", 0.001, 65000.0)]}, "losses")
    assert found.precision == "float32" and "Stay in float32" in found.verdict and "nothing is left" in found.verdict
    found = Advice(rows, {1.0: 0.1}, 1e-3, "a machine", "", {"float16": [operator("linear", 0.001, 10.0)]}, "losses")
    assert found.precision == "float16"


def test_what_the_script_itself_computes_in_float16():
    rows = [trial("float32", losses=(math.nan, math.nan)), trial("bfloat16", 0.5), trial("float16", 0.5, error=math.nan)]
    found = Advice(rows, {}, 0.0, "a machine", "", {"float32": [operator("exp", math.inf, math.inf), operator("mul", 0.01, 100.0)]}, "losses")
    assert "exp at train.py:7" in found.verdict and ".half()" in found.verdict and "is not the cause" not in found.verdict
    assert "by loss scale" not in str(found) and "not finite" in str(found) and "nan %" not in str(found)
    assert "not the cause" in Advice(rows, {}, 0.0, "a machine", "", {}, "losses").verdict


def test_no_scale_is_proposed_under_a_misuse():
    rows = [trial("float32"), trial("bfloat16", 1.0), trial("float16", 0.5)]
    found = Advice(rows, {1.0: 0.1}, 1e-3, "a machine", "", {}, "losses", ["train.py:7: [clip-scaled-gradients] it is"])
    assert found.precision == "float16" and "init_scale=" not in found.verdict and "Mend the misuse" in found.verdict
    assert "misuse: train.py:7: [clip-scaled-gradients]" in str(found) and "clip-scaled" in found._repr_html_()


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
def test_a_scripts_misuse_is_told(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.replace("    scaler.step(", "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    scaler.step("))
    found = advise_script(str(path), ["64"], 3)
    assert len(found.misuse) == 1 and "[clip-scaled-gradients]" in found.misuse[0] and len(found.trials["float16"].rounds) == 3


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
def test_a_loss_of_nan_is_traced_to_the_operator_that_made_it(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("import torch\np = torch.nn.Parameter(torch.tensor([1.0, 0.0]))\nfor i in range(9):\n    logs = torch.log(p)\n    (p * logs).sum().backward()\n")
    found = advise_script(str(path), [], 3)
    assert "train.py:4: log returned inf although its inputs are finite" in found.verdict and "clamp" in found.verdict and found.origin in found.verdict


def test_a_model_s_loss_of_nan_is_traced_to_the_operator_that_made_it():
    p = torch.nn.Linear(2, 1)
    found = doctor.advise(p, torch.ones(1, 2), lambda out: (0 * out).log().sum() * 0, torch.optim.SGD(p.parameters()), steps=2)
    assert "test_advise.py:" in found.verdict and "log returned inf" in found.verdict


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
def test_the_region_of_a_trial_is_no_misuse_of_the_script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("import torch\np = torch.nn.Parameter(torch.ones(4, 4))\nfor i in range(9):\n    (p @ p).sum().backward()\n")
    found = advise_script(str(path), [], 3)
    assert not found.misuse


def test_a_result_beyond_the_dtype_is_told_to_be_above_it():
    made = [str(OperatorError("mm", ("a.py", 1), "float16", "", 0.0, amax, 1)) for amax in (4 * 65504.0, 65504.0, 16376.0)]
    assert [text.split("result ")[1] for text in made] == [
        f"{words} the largest float16 value" for words in ("2.62e+05, 2^2 times above", "6.55e+04, close to", "1.64e+04, 2^2 times below")]


SAVES = """
import os
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first = 0
if os.path.exists("last.pt"):
    first = torch.load("last.pt")["step"] + 1
for i in range(first, 12):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).square().mean().backward()
    optimizer.step()
    for name in ("last.pt", "ck.pt"):
        torch.save({"step": i, "model": model.state_dict()}, name)
    assert torch.load("ck.pt")["step"] == i
    save_file(model.state_dict(), "model.safetensors")
    assert load_file("model.safetensors")["weight"].equal(model.weight)
    state = {"model": torch.full((2,), float(i))}
    dcp.save(state, checkpoint_id="parts", no_dist=True)
    state["model"].zero_()
    dcp.load(state, checkpoint_id="parts", no_dist=True)
    assert state["model"].tolist() == [i, i]
"""


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def folder_of_saves(tmp_path, monkeypatch):
    """The current folder, in which train.py saves what it trains."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SAVES)
    return tmp_path


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
def test_a_scripts_saves_are_left_out(folder_of_saves):
    torch.save({"step": 100}, "ck.pt")
    before = contents(folder_of_saves)
    found = advise_script("train.py", [], 20)
    assert all(len(t.losses) == 12 and len(t.rounds) == 3 for t in found.trials.values())
    assert contents(folder_of_saves) == before and not (folder_of_saves / "parts").exists()
    assert {"ck.pt", "last.pt", "model.safetensors"} < set(found.left_out)
    assert "the script's saves were left out: ck.pt, last.pt, model.safetensors, parts" in str(found)
    assert "saves were left out: ck.pt" in found._repr_html_()


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
def test_a_script_resumes_from_the_checkpoint_that_was_there(folder_of_saves):
    torch.save({"step": 6}, "last.pt")
    before = contents(folder_of_saves)
    found = advise_script("train.py", [], 20)
    assert all(len(t.losses) == 5 for t in found.trials.values()) and contents(folder_of_saves) == before
    torch.save({"step": 11}, "last.pt")
    with pytest.raises(RuntimeError, match="ended in float32 without a backward pass, so that there was nothing to measure. If it resumes from the checkpoint of an earlier run"):
        advise_script("train.py", [], 20)


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
@pytest.mark.parametrize("use", ['os.replace("ck.pt", "best.pt")', 'os.remove("ck.pt")', 'open("ck.pt", "rb")'])
def test_an_older_file_is_not_taken_for_the_one_that_was_left_out(tmp_path, monkeypatch, use):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import os, shutil" + BREAKS.format(f'torch.save({{}}, "ck.pt"); {use}'))
    torch.save({"step": 100}, "ck.pt")
    torch.save({"step": 50}, "best.pt")
    before = contents(tmp_path)
    with pytest.raises(RuntimeError, match="(?s)has left out the save of ck.pt.*saves were left out: ck.pt"):
        advise_script("train.py", [], 20)
    assert contents(tmp_path) == before and len(advise_script("train.py", [], 3).trials) == 3


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
def test_a_temporary_file_of_the_script_is_written(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("import os, tempfile" + BREAKS.format(
        "f = tempfile.NamedTemporaryFile(); torch.save(model.state_dict(), f.name); assert os.path.getsize(f.name); torch.load(f)"))
    assert not advise_script(str(path), [], 6).left_out


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
def test_files_that_were_left_out_are_moved_copied_and_removed_among_themselves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "train.py").write_text("import os, pathlib, shutil" + BREAKS.format("""torch.save({"step": i}, "ck.tmp"); os.replace("ck.tmp", "ck.pt")
        shutil.copy("ck.pt", "best.pt"); assert shutil.copy2("best.pt", "folder") == os.path.join("folder", "best.pt")
        shutil.copyfile(pathlib.Path("ck.pt"), "again.pt"); shutil.move("again.pt", "moved.pt")
        assert all(torch.load(name)["step"] == i for name in ("ck.pt", "best.pt", "folder/best.pt", "moved.pt"))
        os.remove("moved.pt"); os.unlink("folder/best.pt")
        open("notes.txt", "w").close(); os.rename("notes.txt", "notes.old"); shutil.copy("notes.old", "notes.txt"); os.remove("notes.old")"""))
    torch.save({"step": 100}, "ck.pt")
    torch.save({"step": 50}, "best.pt")
    before = contents(tmp_path)
    assert set(advise_script("train.py", [], 6).left_out) == {"ck.pt", "best.pt"}
    assert contents(tmp_path) == {**before, pathlib.Path("notes.txt"): b""}


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
def test_a_script_that_fails_before_it_trains_is_not_told_of_checkpoints(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("import torch\nopen('data.csv')\n")
    with pytest.raises(RuntimeError, match="(?s)failed in float32 .exit status 1. before its first backward pass\n.*FileNotFoundError") as failed:
        advise_script(str(path), [], 2)
    assert "checkpoint" not in str(failed.value)


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
def test_a_script_that_fails_because_its_training_has_ended_already(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("""import torch
for _ in range(torch.load("last.pt")["epoch"], 3):
    loss = torch.nn.Linear(2, 1)(torch.ones(2)).sum()
    loss.backward()
print(loss.item())
""")
    torch.save({"epoch": 3}, "last.pt")
    with pytest.raises(RuntimeError, match="(?s)failed in float32 .exit status 1. without a backward pass.*may have ended the training already.*NameError"):
        advise_script("train.py", [], 2)
    torch.save({"epoch": 2}, "last.pt")
    (tmp_path / "train.py").write_text((tmp_path / "train.py").read_text() + "raise KeyError('later')\n")
    with pytest.raises(RuntimeError, match="(?s)^train.py failed in float32 .exit status 1.\n.*KeyError: 'later'"):
        advise_script("train.py", [], 2)
