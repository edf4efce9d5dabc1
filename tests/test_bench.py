"""ampc.bench: what it counts, what it leaves alone, the command."""

import json
import math
import subprocess
import sys

import pytest
from where import DEVICE, ON_GPU

import ampc
from ampc import bench as module
from ampc import nn
from ampc.doctor import precision_advisor

F = nn.functional
PRECISIONS = ["float32", *(["tf32"] if ON_GPU else []), "bfloat16", "float16"]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(module, "PEAK_SIZE", 64)
    monkeypatch.setattr(module, "PEAK_SECONDS", 0.01)
    module.peak_flops.cache_clear()
    yield
    module.peak_flops.cache_clear()


def counted(run):
    with module._Products() as p:
        run()
    return p.count


def test_multiplications():
    """Of a product m n k; backward two such, or one where nobody wants the input's gradient."""
    x, w = ampc.randn(7, 5, device=DEVICE, requires_grad=True), ampc.randn(5, 3, device=DEVICE, requires_grad=True)
    assert counted(lambda: (x @ w).sum().backward()) == 3 * 7 * 5 * 3 and counted(lambda: (x.detach() @ w).sum().backward()) == 2 * 7 * 5 * 3
    layer = nn.Linear(5, 4).to(DEVICE)
    assert counted(lambda: layer(x.detach()).sum().backward()) == 2 * 7 * 5 * 4
    c, d = ampc.randn(3, 7, 5, device=DEVICE), ampc.randn(3, 5, 2, device=DEVICE)
    assert counted(lambda: ampc.baddbmm(ampc.zeros(3, 7, 2, device=DEVICE), c, d)) == counted(lambda: ampc.bmm(c, d)) == 3 * 7 * 5 * 2
    images = ampc.randn(2, 4, 9, 9, device=DEVICE)
    conv, back = nn.Conv2d(4, 6, 3, groups=2, stride=2).to(DEVICE), nn.ConvTranspose2d(4, 6, 3, stride=2).to(DEVICE)
    with ampc.no_grad():
        if not ON_GPU:  # there it goes by columns
            assert counted(lambda: conv(images)) == 2 * 6 * 16 * 2 * 9 and counted(lambda: back(images)) == 2 * 4 * 81 * 6 * 9
            same = nn.ConvTranspose2d(4, 4, 3, stride=2)
            assert counted(lambda: same(images)) == 2 * 4 * 81 * 4 * 9
            packed = nn.utils.rnn.pack_padded_sequence(ampc.randn(10, 2, 5), [10, 7])
            assert counted(lambda: nn.LSTM(5, 6)(packed)) == 17 * (5 * 24 + 6 * 24)
            q = ampc.randn(2, 3, 8, 16)
            assert counted(lambda: F.scaled_dot_product_attention(q, q, q)) == 2 * (2 * 3 * 8 * 16 * 8)
            assert counted(lambda: nn.LSTM(5, 6)(ampc.randn(10, 2, 5))) == 20 * 5 * 24 + 20 * 6 * 24


def test_it_measures_and_puts_everything_back():
    ampc.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).to(DEVICE)
    opt, batch = ampc.optim.SGD(net.parameters(), lr=0.1), (ampc.randn(32, 64, device=DEVICE), ampc.randn(32, 8, device=DEVICE))
    before = [p.tolist() for p in net.parameters()]
    found = module.bench(net, batch, nn.MSELoss(), opt, steps=3, name="small")
    assert [p.tolist() for p in net.parameters()] == before and all(p.grad is None for p in net.parameters())
    assert [r.precision for r in found.rows] == PRECISIONS and found.samples == 32
    assert found.multiplications == 32 * 64 * 64 * 2 + 32 * 64 * 8 * 3  # the first layer's input wants no gradient
    for r in found.rows:
        assert r.throughput == pytest.approx(32 / r.seconds) and r.flops == pytest.approx(2 * found.multiplications / r.seconds)
        assert 0 < r.share < math.inf and r.peak_bytes > 0
    assert found.rows[0].error == 0 < found.rows[-1].error < 0.1
    text = str(found)
    assert text.startswith("small on ") and found.verdict in text and "of its time" in found.why and "<td" in found._repr_html_()
    kept = json.loads(found.to_json())
    assert kept["rows"][0]["precision"] == "float32" and kept["rows"][0]["share"] == found.rows[0].share


@pytest.mark.parametrize(("batch", "loss", "text"), [
    (ampc.randn(4, 8), nn.CrossEntropyLoss(), r"is a Tensor, so the loss is loss_fn\(model\(batch\)\), which CrossEntropyLoss does not take.*target.*Pass \(inputs, target\)"),
    ((ampc.randn(4, 8),), nn.MSELoss(), "is a tuple, .*MSELoss does not take.*target"),
    ((ampc.randn(4, 8), ampc.randn(4, 2)), lambda y: y.sum(), r"loss_fn\(model\(\*inputs\), target\), which <lambda> does not take: too many")])
def test_a_batch_that_does_not_fit_the_loss(batch, loss, text):
    net = nn.Linear(8, 2)
    with pytest.raises(TypeError, match=text):
        module.bench(net, batch, loss, ampc.optim.SGD(net.parameters(), lr=0.1), steps=2)


def test_more_than_the_peak_is_told():
    net = nn.Linear(64, 64).to(DEVICE)
    batch = ampc.randn(32, 64, device=DEVICE), ampc.randn(32, 64, device=DEVICE)
    found = module.bench(net, batch, nn.MSELoss(), ampc.optim.SGD(net.parameters(), lr=0.1), steps=2)
    found.rows = [r._replace(peak_flops=2 * r.flops) for r in found.rows]
    assert [row[-1] for row in found._cells()[1:]] == ["50 %"] * len(found.rows) and "Something else" not in found.why
    found.rows[-1] = found.rows[-1]._replace(peak_flops=found.rows[-1].flops / 2)
    assert found._cells()[-1][-1] == "" and "Something else used this machine" in found.why


def test_buffers_and_random_numbers_are_put_back():
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)).to(DEVICE)
    opt = ampc.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    before = net.state_dict()["1.running_mean"].tolist(), ampc.get_rng_state().tolist(), str(opt.state_dict())
    module.bench(net, (ampc.ones(4, 8, device=DEVICE) * 3, ampc.ones(4, 2, device=DEVICE)), nn.MSELoss(), opt, steps=2)
    assert (net.state_dict()["1.running_mean"].tolist(), ampc.get_rng_state().tolist(), str(opt.state_dict())) == before
    assert ampc.doctor.guard._State.mode == "warn"


@pytest.mark.parametrize("times", [0.5, 1.0, 4.0])
def test_a_step_is_said_to_fall_only_by_faster_products(times):
    net = nn.Linear(64, 64).to(DEVICE)
    batch = ampc.randn(32, 64, device=DEVICE), ampc.randn(32, 64, device=DEVICE)
    found = module.bench(net, batch, nn.MSELoss(), ampc.optim.SGD(net.parameters(), lr=0.1), steps=2)
    found.advice.without_units = []
    found.rows = [r._replace(peak_flops=(4 if r.precision == "float32" else 4 * times) * found.rows[0].flops) for r in found.rows]
    assert ("could fall to 0.81 of float32's time" in found.why) == (times > 1) and ("did not multiply faster" in found.why) == (times <= 1)


@pytest.mark.skipif(ON_GPU, reason="a GPU has units for both")
@pytest.mark.parametrize("missing", [["bfloat16", "float16"], ["float16"], []], ids=str)
def test_without_units_it_does_not_say_that_16_bits_multiply_faster(missing, monkeypatch):
    monkeypatch.setattr(precision_advisor, "without_units", lambda kind: missing)
    net = nn.Linear(64, 64)
    found = module.bench(net, (ampc.randn(32, 64), ampc.randn(32, 64)), nn.MSELoss(), ampc.optim.SGD(net.parameters(), lr=0.1), steps=2)
    assert ("times as fast" in found.why) == (len(missing) < 2) and "would take" in found.why and "nan" not in found.why
    assert found.advice.worth in found.why and bool(found.advice.worth) == bool(missing)


def test_without_products_there_is_nothing_to_gain():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(ampc.ones(16, device=DEVICE))

        def forward(self, x):
            return x * self.w
    net = Scale()
    found = module.bench(net, ampc.randn(4, 16, device=DEVICE), lambda y: y.square().mean(), ampc.optim.SGD(net.parameters(), lr=0.1), steps=2)
    assert found.multiplications == 0 and found.why.startswith("There are no matrix products") and math.isfinite(found.rows[0].seconds)


@pytest.mark.cpu
@pytest.mark.parametrize("name", list(module.MODELS))
def test_built_in_models_train(name):
    model, batch, loss_fn, opt = module.built_in(name, 4)
    for _ in range(2):
        opt.zero_grad()
        loss = loss_fn(model(*batch[:-1]), batch[-1])
        loss.backward()
        opt.step()
    assert math.isfinite(loss.item()) and all(p.grad is not None for p in model.parameters())


FILE = """
import torch
def make_model():
    torch.manual_seed(0)
    return torch.nn.Linear(16, 4)
def make_batch():
    return torch.randn(8, 16), torch.randint(0, 4, (8,))
"""


@pytest.mark.skipif(ON_GPU, reason="the processes are on the CPU")
def test_the_command(tmp_path):
    pytest.importorskip("matplotlib")

    def command(*args):
        return subprocess.run([sys.executable, "-m", "ampc.cli", "bench", *args], capture_output=True, text=True, cwd=tmp_path)
    path = tmp_path / "model.py"
    path.write_text(FILE)
    done = command("model.py", "mlp", "--batch", "2", "--steps", "2", "--json", "out.json", "--picture", "out.png")
    assert done.returncode == 0, done.stderr
    assert "model.py on the CPU" in done.stdout and "bfloat16" in done.stdout and (tmp_path / "out.png").read_bytes()[:4] == b"\x89PNG"
    said = done.stderr.splitlines()  # no terminal: a line at the start of each stage
    assert said[0] == "model.py: float32, round 1 of 3" and "mlp: float16, round 3 of 3" in said and "model.py: the device's peak, float32" in said, said
    kept = json.loads((tmp_path / "out.json").read_text())
    assert [k["name"] for k in kept] == ["model.py", "mlp"] and kept[0]["samples"] == 8 and kept[0]["multiplications"] == 2 * 8 * 16 * 4
    path.write_text("import torch\nprint('it runs')\n")
    for args, text in ((["resnet"], "ampc bench: there is no model 'resnet'; expected mlp, cnn, gpt, lstm"), (["model.py"], "model.py has no function make_model(); a file to measure has make_model() and make_batch(), and a whole script runs under `ampc advise model.py`"),
                       (["absent.py"], "absent.py"), (["mlp", "--steps", "1"], "2 or more"), (["mlp", "--batch", "0"], "--batch must be 1 or more")):
        done = command(*args)
        assert done.returncode == 1 and text in done.stderr and "Traceback" not in done.stderr and "it runs" not in done.stdout
    path.write_text("def make_model():\n    return 3\ndef make_batch():\n    return 1\n")
    done = command("model.py")
    assert done.returncode == 1 and "make_model() must give a Module, got int" in done.stderr and "Traceback" not in done.stderr
