"""The overflow ledger: what is kept of skipped steps, why they were skipped, and how the report reads."""

import copy
import math
import pickle
import sys
import warnings

import pytest
from where import ON_GPU

import ampc
from ampc.amp import GradScaler
from ampc.doctor import ledger as module
from ampc.doctor._names import Names

KIND = "cuda" if ON_GPU else "cpu"


class Net(ampc.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = ampc.nn.Sequential(ampc.nn.Linear(4, 8), ampc.nn.ReLU())
        self.head = ampc.nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.encoder(x))


def setup(**options):
    ampc.manual_seed(0)
    net = Net()
    return net, ampc.optim.SGD(net.parameters(), lr=0.125), GradScaler(KIND, **{"init_scale": 64.0, **options})


def step(net, opt, scaler, factor=1.0, spoil=None):
    opt.zero_grad()
    loss = net(ampc.ones(3, 4)).square().mean() * factor
    scaler.scale(loss).backward()
    if spoil:
        spoil(net)
    scaler.step(opt)
    scaler.update()


def put(name, index, value):
    def spoil(net):
        dict(net.named_parameters())[name].grad.detach()[index] = value
    return spoil


def test_a_skipped_step_names_parameter_index_and_numbers():
    net, opt, scaler = setup()
    step(net, opt, scaler)
    want = math.sqrt(sum((p.grad.double() ** 2).sum().item() for p in net.parameters()))
    step(net, opt, scaler, spoil=put("head.weight", (1, 3), math.inf))
    first, second = scaler.ledger[:]
    assert (first.number, first.skipped, first.scale, first.lr, first.infs, first.nans) == (1, False, 64.0, 0.125, 0, 0)
    assert first.grad_norm == pytest.approx(want, rel=1e-6) and first.gradients == [] and 0 < first.loss < 10
    assert (second.skipped, second.infs, second.nans, second.scale) == (True, 1, 0, 64.0)
    bad = second.culprit
    assert (bad.name, bad.shape, bad.infs, bad.nans) == ("head.weight", (2, 8), 1, 0)
    assert bad.first_bad == (1, 3)
    assert [g.name for g in second.gradients] == [n for n, _ in net.named_parameters()] and "skipped, 1 inf" in repr(second)
    assert scaler.ledger.skipped == [second] and len(scaler.ledger) == scaler.ledger.total == 2


def test_where_every_step_was_skipped_the_report_tells_of_no_applied_one():
    net, opt, scaler = setup()
    for _ in range(2):
        step(net, opt, scaler, spoil=put("head.weight", (1, 3), math.nan))
    assert scaler.ledger.ranges() == [] and "applied" not in str(scaler.report())
    step(net, opt, scaler)
    assert "step 3, the last applied: the largest gradient value is" in str(scaler.report())


def test_underflow_is_a_share_of_the_scaled_values():
    net, opt, scaler = setup(init_scale=1.0)
    values = ampc.tensor([[1e-5] * 4, [1e-4] * 4] * 4)  # below and above 2^-14

    def spoil(net):
        net.encoder[0].weight.grad.detach().copy_(values)
        net.head.bias.grad.detach()[0] = math.inf
    step(net, opt, scaler, spoil=spoil)
    by_name = {g.name: g for g in scaler.ledger[-1].gradients}
    assert by_name["encoder.0.weight"].underflow == 0.5 and by_name["encoder.0.weight"].amax == pytest.approx(1e-4, rel=1e-5)


def test_the_ring_holds_a_thousand(monkeypatch):
    net, opt, scaler = setup()
    for _ in range(module.STEPS + 20):
        step(net, opt, scaler)
    assert len(scaler.ledger) == 1000 and scaler.ledger.total == 1020 and scaler.ledger[0].number == 21


def test_old_steps_keep_their_sums(monkeypatch):
    monkeypatch.setattr(module, "TABLES", 2)
    net, opt, scaler = setup()
    for i in range(6):
        step(net, opt, scaler, spoil=put("head.bias", (0,), math.inf) if i == 1 else None)
    want = math.sqrt(sum((p.grad.double() ** 2).sum().item() for p in net.parameters()))
    first, second, last = scaler.ledger[0], scaler.ledger[1], scaler.ledger[-1]
    assert (second.skipped, second.infs, second.nans) == (True, 1, 0) and not first.skipped and first.amax > 0
    assert last.grad_norm == pytest.approx(want, rel=1e-6) and 0 < first.grad_norm < math.inf and first.scale == 64.0
    assert (second.gradients == []) == ON_GPU  # a GPU's rows are gone by then, a CPU's are not


def test_causes():
    net, opt, scaler = setup()
    for _ in range(8):
        step(net, opt, scaler)
    step(net, opt, scaler, spoil=put("head.bias", (0,), math.inf))
    step(net, opt, scaler, math.nan)
    for _ in range(3):
        step(net, opt, scaler)
    scaler.update(1.0)
    step(net, opt, scaler, spoil=put("head.bias", (0,), math.inf))
    causes = [scaler.ledger.cause(s) for s in scaler.ledger.skipped]
    assert [c for c, _ in causes] == ["scale", "model", "model"]
    assert "scale of 64 was too high" in causes[0][1] and "at a scale of 1" in causes[2][1]
    assert "loss itself is nan" in causes[1][1] and "`ampc run --doctor` names which" in causes[1][1]
    assert scaler.ledger.cause(scaler.ledger[0]) == ("none", "the step was applied")
    net, opt, scaler = setup()
    opt.param_groups[0]["lr"] = 0.0
    for i in range(12):
        step(net, opt, scaler, 4.0 ** max(i - 5, 0))
    step(net, opt, scaler, 1e5, spoil=put("head.bias", (0,), math.inf))
    cause, text = scaler.ledger.cause(scaler.ledger[-1])
    assert cause == "divergence" and "a loss that grew from" in text


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cleared", [False, True])
def test_what_a_skipped_step_leaves_in_the_gradients_is_the_cause_of_later_skips(cleared):
    net, opt, scaler = setup()
    for i in range(4):
        if cleared:
            opt.zero_grad(set_to_none=False)
        scaler.scale(net(ampc.ones(3, 4)).square().mean()).backward()
        if i == 1:
            put("head.weight", (1, 3), math.nan)(net)
        scaler.step(opt)
        scaler.update()
    causes = [scaler.ledger.cause(step) for step in scaler.ledger]
    assert [cause for cause, _ in causes] == ["none", "scale"] + (["none", "none"] if cleared else ["leftover", "leftover"])
    assert cleared or "zero_grad" in causes[-1][1] and "leftover: the inf and nan" in str(scaler.report())


@pytest.mark.parametrize("updates", [0, 1, 3, 8])
def test_a_loss_that_is_nan_after_few_updates_may_come_of_the_learning_rate(updates):
    net, opt, scaler = setup()
    for _ in range(updates):
        step(net, opt, scaler)
    step(net, opt, scaler, math.nan)
    cause, text = scaler.ledger.cause(scaler.ledger[-1])
    expected = {1: "after 1 update, so the learning rate", 3: "after 3 updates, so the learning rate"}.get(updates)
    assert cause == "model" and (expected in text if expected else "learning rate" not in text)


@pytest.mark.parametrize(("skips", "left_out"), [(12, ""), (13, "1 skipped step is left out"), (20, "8 skipped steps are left out")])
def test_a_report_shows_the_first_skip_and_the_last_ones(skips, left_out):
    """The first may be what all others come of; it says how many lie between."""
    net, opt, scaler = setup(init_scale=2.0**40)
    step(net, opt, scaler)
    for _ in range(skips):
        step(net, opt, scaler, spoil=put("head.bias", (0,), math.inf))
    report = scaler.report()
    numbers = [int(line.split()[0]) for line in str(report).splitlines()[2:] if line.split()[0].isdigit() and "head.bias" in line]
    last = skips + 1
    assert numbers == ([2, *range(last - 10, last + 1)] if left_out else [*range(2, last + 1)])
    for shown in (str(report), report._repr_html_()):
        assert ("left out" in shown) == bool(left_out) and left_out in shown


def test_losses_that_are_no_number_and_steps_with_closures():
    p = ampc.nn.Parameter(ampc.ones(3))
    opt, scaler = ampc.optim.SGD([p], lr=0.5), GradScaler(KIND, init_scale=4.0)
    (scaler.scale(p * 2)).sum().backward()
    scaler.step(opt)
    assert math.isnan(scaler.ledger[-1].loss) and not scaler.ledger[-1].skipped
    scaler.update()

    def closure():
        opt.zero_grad()
        loss = (p * 3).sum()
        scaler.scale(loss).backward()
        return loss
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the closure makes new gradients
        scaler.step(opt, closure)
    assert scaler.ledger[-1].loss == pytest.approx(0.0) and len(scaler.ledger) == 2  # p is 0 by now


def test_names_are_those_of_the_outermost_module():
    net = Net()
    assert Names().of(net.encoder[0].weight) == "encoder.0.weight" and Names().of(ampc.nn.Parameter(ampc.ones(1))) is None
    outer = ampc.nn.ModuleDict({"student": net})
    assert Names().of(net.head.bias) == "student.head.bias"
    del outer


def test_the_ledger_is_not_part_of_a_scalers_state():
    net, opt, scaler = setup()
    step(net, opt, scaler)
    step(net, opt, scaler, math.inf)
    again = pickle.loads(pickle.dumps(scaler))
    assert len(again.ledger) == 0 and again.get_scale() == scaler.get_scale() and again._number != scaler._number
    assert len(copy.deepcopy(scaler).ledger) == 0


def test_the_report_reads(tmp_path):
    net, opt, scaler = setup()
    assert str(scaler.report()) == "GradScaler: no step yet"
    for _ in range(4):
        step(net, opt, scaler)
    step(net, opt, scaler, spoil=put("head.weight", (1, 3), math.inf))
    step(net, opt, scaler)
    text = str(scaler.report())
    lines = text.splitlines()
    assert lines[0] == f"GradScaler: 6 steps, 1 skipped (16.7 %); the scale is {scaler.get_scale():g}" and lines[1].split() == [
        "step", "loss", "scale", "norm", "lr", "cause", "first", "parameter", "inf", "nan", "at"]
    assert lines[2].split()[0] == "5" and "head.weight" in lines[2] and "[1, 3]" in lines[2]
    assert lines[3].startswith("scale: the scale of 64 was too high") and "the largest gradient value is" in lines[4]
    shown = scaler.report()._repr_html_()
    assert "<table>" in shown and "head.weight" in shown and "<script" not in shown


def test_the_picture(tmp_path):
    pytest.importorskip("matplotlib")
    net, opt, scaler = setup()
    for i in range(6):
        step(net, opt, scaler, spoil=put("head.bias", (0,), math.inf) if i in (1, 2) else None)
    assert "data:image/png;base64," in scaler.report()._repr_html_()
    scaler.report().save(tmp_path / "scale.png")
    small, drawn = (tmp_path / "scale.png").stat().st_size, (tmp_path / "scale.png").read_bytes()
    assert small > 10_000 and drawn[:4] == b"\x89PNG"


def test_without_matplotlib_the_page_says_so(monkeypatch):
    net, opt, scaler = setup()
    step(net, opt, scaler)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    assert "no picture: install matplotlib" in scaler.report()._repr_html_()
    with pytest.raises(ImportError):
        scaler.report().save("x.png")


@pytest.mark.parametrize("scale, words", [(2.0, "it was 16, 4.1e+03 times below float16's largest number"), (65536.0, "it was 5.24e+05, which float32 holds; float16 would hold up to 65504")])
def test_the_report_on_a_good_step_is_no_overflow(scale, words):
    p = ampc.nn.Parameter(ampc.ones(2))
    optimizer, scaler = ampc.optim.SGD([p], lr=0.1), ampc.amp.GradScaler("cpu", init_scale=scale)
    scaler.scale((p * 8.0).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert words in str(scaler.report()) and "0 skipped" in str(scaler.report())
