"""The misuse guard: every rule's page has a defective piece of a script, reported at its line, and a correct one that is not."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from where import DEVICE, ON_GPU

import ampc
from ampc import doctor, nn
from ampc.amp import GradScaler
from ampc.doctor import guard, rules
from ampc.nn import functional as F

PAGES = sorted((Path(__file__).resolve().parent.parent / "docs" / "rules").glob("[a-z]*.md"))
HOST_KNOWS = {"scheduler-after-skip", "metric-is-scaled", "loss-not-finite", "bce-under-autocast"}  # on a GPU nobody waits to know; the last is an error
ABOUT_GPUS = {"step-waits"}
OF_RANKS = {"unscale-in-no-sync", "sampler-without-set-epoch", "checkpoint-by-every-rank", "optimizer-before-sharding"}  # test_distributed_training.py has several


@pytest.fixture(autouse=True)
def fresh():
    doctor.reports(clear=True)
    guard._State.scaled = None
    doctor.ignore("autocast-without-effect")  # which machine this is
    ampc._C._regions_to_observe(0)  # and that these models are small
    yield
    doctor.reports(clear=True)
    guard._State.ignored.clear()


def surroundings(fp16=True):
    """What the pages call by name."""
    ampc.manual_seed(0)
    model, other = (ampc.nn.Sequential(ampc.nn.Linear(8, 16), ampc.nn.ReLU(), ampc.nn.Linear(16, 4)) for _ in range(2))
    optimizer, second = ampc.optim.SGD(model.parameters(), lr=0.01), ampc.optim.SGD(other.parameters(), lr=0.01)
    batches = [(ampc.randn(6, 8), ampc.randint(0, 4, (6,))) for _ in range(3)]
    kind = "cuda" if ON_GPU else "cpu"
    names = {"torch": ampc, "model": model, "other": other, "optimizer": optimizer, "second": second, "batches": batches,
             "criterion": ampc.nn.CrossEntropyLoss(), "scaler": GradScaler(kind, init_scale=256.0),
             "autocast": ampc.autocast(kind, enabled=True, dtype=ampc.float16) if fp16 else None, "scheduler": ampc.optim.lr_scheduler.StepLR(optimizer, 1)}
    return {**names, "x": batches[0][0], "y": batches[0][1]}


def run(code, file):
    if ON_GPU:
        code = code.replace('"cpu"', '"cuda"')
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(compile(code, file, "exec"), surroundings("with autocast" in code))
    return [w for w in caught if issubclass(w.category, (doctor.MisuseWarning, doctor.PerformanceNote))]


def blocks(page):
    text = page.read_text()
    return [re.search(rf"## {name}\n\n```python\n(.*?)```", text, re.S).group(1) for name in ("Wrong", "Right")]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_rules_page_is_true(page):
    if page.stem not in rules.RUN:
        pytest.skip("a rule of ampc check alone")
    if ON_GPU and page.stem in HOST_KNOWS:
        pytest.skip("nothing waits for a GPU to say so, or it refuses the call")
    if not ON_GPU and page.stem in ABOUT_GPUS:
        pytest.skip("there is no GPU to wait for")
    if page.stem in OF_RANKS:
        pytest.skip("there is one process")
    if page.stem == "autocast-without-effect":
        guard._State.ignored.clear()
        if ON_GPU or ampc._C._has_units(ampc.float16) or not ampc._C._has_units(ampc.bfloat16):
            pytest.skip("a CPU with units for both, or for none")
    wrong, right = blocks(page)
    said = run(wrong, "wrong.py")
    line = 1 + next(i for i, text in enumerate(wrong.splitlines()) if text.endswith("# reported"))
    assert [(r.rule, r.file, r.line) for r in doctor.reports()] == [(page.stem, "wrong.py", line)], doctor.reports()
    assert len(said) == 1 and (said[0].filename, said[0].lineno) == ("wrong.py", line) and page.stem in str(said[0].message)
    assert doctor.reports()[0].fix in str(said[0].message)
    doctor.reports(clear=True)
    assert run(right, "right.py") == [] and doctor.reports() == []


def test_every_rule_has_a_page():
    assert {p.stem for p in PAGES} >= set(rules.RUN)


def clip_wrong():
    names = surroundings()
    model, scaler = names["model"], names["scaler"]
    scaler.scale(names["criterion"](model(names["x"]), names["y"])).backward()
    return ampc.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def test_numbers_and_names_are_the_runs():
    with pytest.warns(doctor.MisuseWarning, match=r"loss scale 256.*limit of 1 limits the unscaled gradients to 0.00391" if not ON_GPU else "loss scale"):
        clip_wrong()
    names = surroundings()
    optimizer, scaler, model = names["optimizer"], names["scaler"], names["model"]
    with names["autocast"]:
        loss = names["criterion"](model(names["x"]), names["y"])
    scaler.scale(loss).backward()
    model[2].bias.grad.clamp_(-1e-9, 1e-9)
    with pytest.warns(doctor.MisuseWarning, match="the gradient of 2.bias was changed by hand"):
        scaler.step(optimizer)


@pytest.mark.parametrize("scale", [65536.0, 256.0, 1000.0])
@pytest.mark.parametrize("clip", [nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_])
def test_a_limit_times_the_scale_is_right(scale, clip):
    """Only a script that has read the scale can have multiplied by it; one that prints it may still forget to."""
    def run(limit):
        doctor.reports(clear=True)
        names = surroundings()
        scaler = GradScaler("cuda" if ON_GPU else "cpu", init_scale=scale)
        scaler.scale(names["criterion"](names["model"](names["x"]), names["y"])).backward()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clip(names["model"].parameters(), limit(scaler))
        return [r.rule for r in doctor.reports()]
    for factor in (1.0, 0.1, 5, 2.5, 0.35):
        assert run(lambda scaler, factor=factor: factor * scaler.get_scale()) == []
        assert run(lambda scaler, factor=factor: (scaler.get_scale(), factor)[1]) == ["clip-scaled-gradients"] or scale == 1000
    guard._State.scale_read = 0.0
    assert run(lambda scaler: scale) == ["clip-scaled-gradients"]


def test_the_doctor_reports_misuse_with_its_findings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):  # the second time the line has been warned about
            with doctor() as d:
                clip_wrong()
    assert [m.rule for m in d.misuse] == ["clip-scaled-gradients"] and d.findings == []
    assert "but mixed precision is misused" in d.report() and "[clip-scaled-gradients]" in d.report() and "fix: call scaler.unscale_" in d.report()
    assert "1 finding<" in d._repr_html_() and "clip-scaled-gradients" in d._repr_html_()


@pytest.mark.skipif(ON_GPU, reason="there the units are the GPU's")
def test_a_region_without_effect_is_a_note_and_no_error():
    """Once in a script, whatever the guard's mode."""
    code = ("import warnings\nimport ampc as torch\nwarnings.simplefilter('always')\nfor dtype in (torch.float16, torch.float16, torch.bfloat16):\n"
            "    with torch.autocast('cpu', dtype=dtype):\n        torch.ones(4, 4) @ torch.ones(4, 4)\n"
            "with torch.autocast('cpu', dtype=torch.float16):\n    torch.ones(4, 4) @ torch.ones(4, 4)\nprint(torch.doctor.reports()[0].rule)\n")
    for mode in ("warn", "error"):
        env = {**__import__("os").environ, "AMPC_GUARD": mode, "AMPC_CPU": "avx2"}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
        assert done.returncode == 0 and done.stdout == "autocast-without-effect\n", done.stderr
        assert done.stderr.count("PerformanceNote: [autocast-without-effect]") == 1 and "Misuse" not in done.stderr


def test_a_line_is_reported_once_and_errors_each_time():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            clip_wrong()
    assert len(caught) == 1 and len(doctor.reports()) == 1
    for _ in range(2):
        with doctor.errors(), pytest.raises(doctor.MisuseError, match=r"test_guard.py:\d+: \[clip-scaled-gradients\]"):
            clip_wrong()
    doctor.reports(clear=True)
    doctor.ignore("clip-scaled-gradients")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clip_wrong()
    with pytest.raises(ValueError, match="there is no rule 'clip'"):
        doctor.ignore("clip")


@pytest.mark.parametrize("mode, says", [("error", "MisuseError"), ("off", ""), ("warn", "MisuseWarning"), ("loud", "AMPC_GUARD is loud; expected")])
def test_the_environment_chooses(mode, says):
    code = ("import ampc as torch\nm = torch.nn.Linear(2, 2)\no = torch.optim.SGD(m.parameters(), lr=0.1)\ns = torch.amp.GradScaler('cpu')\n"
            "s.scale(m(torch.ones(1, 2)).sum()).backward()\no.step()\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**__import__("os").environ, "AMPC_GUARD": mode})
    assert (says in done.stderr) if says else done.stderr == ""
    assert (done.returncode != 0) == (mode in ("error", "loud"))


def test_norms_by_hand_are_seen_through_views_and_data():
    names = surroundings()
    model = names["model"]
    for norm in (lambda g: g.norm(), lambda g: g.data.norm(2), lambda g: ampc.linalg.vector_norm(g.detach().flatten()),
                 lambda g: ampc.nn.utils.get_total_norm([g])):
        doctor.reports(clear=True)
        scaler = GradScaler("cuda" if ON_GPU else "cpu", init_scale=256.0)
        names["optimizer"].zero_grad()
        scaler.scale(names["criterion"](model(names["x"]), names["y"])).backward()
        norm(model[0].weight.grad)
        line = sys._getframe().f_lineno
        with pytest.warns(doctor.MisuseWarning, match="clip-scaled-gradients"):
            scaler.unscale_(names["optimizer"])
        assert line - 20 < doctor.reports()[0].line < line  # the norm's, not that of unscale_
    with warnings.catch_warnings():
        warnings.simplefilter("error", doctor.MisuseWarning)
        model[0].weight.grad.norm()


@pytest.mark.parametrize("zero", [lambda m, o: o.zero_grad(), lambda m, o: o.zero_grad(set_to_none=False), lambda m, o: m.zero_grad(),
                                  lambda m, o: [p.grad.zero_() for p in m.parameters() if p.grad is not None],
                                  lambda m, o: [p.grad.mul_(0) for p in m.parameters() if p.grad is not None],
                                  lambda m, o: [p.grad.data.fill_(0) for p in m.parameters() if p.grad is not None]])
def test_gradients_made_zero_in_any_way_are_new(zero):
    names = surroundings()
    optimizer, scaler, model = names["optimizer"], names["scaler"], names["model"]
    for x, y in names["batches"]:
        zero(model, optimizer)
        with names["autocast"]:
            loss = names["criterion"](model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update(128.0)
    assert ON_GPU or doctor.reports() == []  # a GPU is not asked whether all is zero


def backward_of_scaled(names):
    """Scaled gradients of a pass in float16."""
    with names["autocast"]:
        loss = names["criterion"](names["model"](names["x"]), names["y"])
    names["scaler"].scale(loss).backward()
    return names["optimizer"], names["scaler"], list(names["model"].parameters())


LINEAR = {
    "halved": lambda p: p.grad.div_(2),
    "by a tensor": lambda p: p.grad.mul_(ampc.tensor(0.5)),
    "masked": lambda p: p.grad.mul_((ampc.rand(p.shape) > 0.5).float()),
    "reversed": lambda p: p.grad.neg_(),
    "a row set to zero": lambda p: p.grad[0].zero_(),
    "doubled by adding": lambda p: p.grad.add_(p.grad),
    "an average that was computed apart": lambda p: p.grad.mul_(0.5).add_(ampc.stack([p.grad, p.grad]).mean(0), alpha=0.5),
    "copied from others": lambda p: p.grad.copy_(ampc.stack([p.grad, p.grad]).mean(0)),
    "changed in a view": lambda p: p.grad.view(-1).mul_(0.5),
}


@pytest.mark.parametrize("change", LINEAR)
def test_linear_changes_of_scaled_gradients_are_right(change):
    optimizer, scaler, params = backward_of_scaled(surroundings())
    with ampc.no_grad():
        for p in params:
            LINEAR[change](p)
    scaler.step(optimizer)
    assert doctor.reports() == []


@pytest.mark.parametrize("change", [lambda p: p.grad.add_(p, alpha=0.1), lambda p: p.grad.add_(ampc.randn(p.shape)), lambda p: p.grad.clamp_(-1e-9, 1e-9),
                                    lambda p: p.grad.mul_(p.grad)])
def test_other_changes_of_scaled_gradients_are_reported(change):
    optimizer, scaler, params = backward_of_scaled(surroundings())
    with ampc.no_grad():
        for p in params:
            change(p)
    with pytest.warns(doctor.MisuseWarning, match="edit-scaled-gradients"):
        scaler.step(optimizer)


@pytest.mark.skipif(ON_GPU, reason="the scale is known to the GPU alone")
@pytest.mark.parametrize("divide", [lambda g, s: g.div_(s), lambda g, s: g.mul_(1 / s), lambda g, s: g.div_(ampc.tensor(s)), lambda g, s: g.mul_(4 / s).div_(4)])
def test_gradients_of_a_scaler_divided_by_hand(divide):
    """They are unscaled then, and those that are divided by another number are not."""
    for factor, said in ((1, []), (2, ["step-on-scaled-gradients"])):
        doctor.reports(clear=True)
        optimizer, scaler, params = backward_of_scaled(surroundings())
        for p in params:
            divide(p.grad, scaler.get_scale() / factor)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.step()
        assert [r.rule for r in doctor.reports()] == said


def test_gradients_in_one_buffer_are_told_apart():
    names = surroundings()
    flat = ampc.zeros(sum(p.numel() for p in names["model"].parameters()))
    if ON_GPU:
        flat = flat.cuda()
    at = 0
    for p in names["model"].parameters():
        p.grad = flat[at:at + p.numel()].view_as(p)
        at += p.numel()
    for _ in range(3):
        flat.zero_()
        optimizer, scaler, _ = backward_of_scaled(names)
        scaler.step(optimizer)
        scaler.update()
    assert ON_GPU or doctor.reports() == []


def test_a_norm_that_is_divided_by_the_scale_is_right():
    optimizer, scaler, params = backward_of_scaled(surroundings())
    assert sum(p.grad.norm() for p in params) / scaler.get_scale() > 0
    scaler.step(optimizer)
    assert doctor.reports() == []


def test_plain_gradients_added_after_a_step_are_no_second_step():
    names = surroundings()
    optimizer, scaler, params = backward_of_scaled(names)
    scaler.step(optimizer)
    ampc.nn.utils.clip_grad_norm_(params, float("inf"))  # the norm alone
    names["criterion"](names["model"](names["x"]), names["y"]).backward()
    optimizer.step()
    assert doctor.reports() == []


def steps_of(dtype, lr=1e-7, steps=12, **options):
    """The rules that training a layer of weights around 1 reports."""
    layer = nn.Linear(8, 8).to(DEVICE if ON_GPU else "cpu", dtype=dtype)
    nn.init.uniform_(layer.weight, 0.5, 1.0)
    optimizer = ampc.optim.SGD(layer.parameters(), lr=lr, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(steps):
            optimizer.zero_grad()
            layer(ampc.ones(4, 8, dtype=dtype, device=layer.weight.device)).float().sum().backward()
            optimizer.step()
    return {r.rule for r in doctor.reports()} - {"fp16-without-scaler"}


@pytest.mark.parametrize("dtype", [ampc.bfloat16, ampc.float16])
def test_updates_below_the_last_digit_are_reported(dtype):
    assert steps_of(dtype) == {"weights-too-coarse"}


@pytest.mark.parametrize("options", [{"lr": 0.1}, {"rounding": "kahan"}, {"rounding": "master"}, {"rounding": "stochastic"}, {"lr": 0.0}, {"steps": 4}])
def test_updates_that_are_kept_are_not(options):
    assert steps_of(ampc.bfloat16, **options) == set()


@pytest.mark.parametrize("optimizer", [ampc.optim.SGD, ampc.optim.Adam])
def test_skipped_steps_lose_no_updates(optimizer):
    """A parameter that a skipped step has left as it was says nothing of its digits."""
    p = nn.Parameter(ampc.ones(64, dtype=ampc.bfloat16))
    opt, scaler = optimizer([p], lr=0.1), GradScaler("cuda" if ON_GPU else "cpu", init_scale=2.0**14)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(8):
            opt.zero_grad()
            scaler.scale(p.float().sum()).backward()
            if step:
                p.grad[3] = float("inf")
            scaler.step(opt)
            scaler.update()
    assert {r.rule for r in doctor.reports()} <= {"scaler-without-fp16"}


def test_the_first_steps_of_a_warm_up_are_not_looked_at():
    p = nn.Parameter(ampc.ones(64, dtype=ampc.bfloat16))
    optimizer = ampc.optim.SGD([p], lr=0.1)
    scheduler = ampc.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step * 1e-4)
    for _ in range(12):
        p.grad = ampc.ones(64, dtype=ampc.bfloat16)
        optimizer.step()
        scheduler.step()
    assert doctor.reports() == []


ONTO = {
    "sum": (lambda t: t.add_(1), "sum-too-coarse", 2100),
    "difference": (lambda t: t.sub_(1), "sum-too-coarse", 2100),
    "average": (lambda t: t.lerp_(ampc.full((4,), 2.0, dtype=t.dtype), 1e-5), "weights-too-coarse", 10),
    "update": (lambda t: t.sub_(ampc.full((4,), 2.0, dtype=t.dtype), alpha=1e-5), "weights-too-coarse", 10),
    "few": (lambda t: t.add_(1), None, 300),
    "zeros": (lambda t: t.add_(0), None, 20),
    "an average that moves": (lambda t: t.lerp_(ampc.full((4,), 2.0, dtype=t.dtype), 0.1), None, 10),
    "made anew": (lambda t: t.copy_(ampc.ones(4)).add_(t, alpha=0.0), None, 20),
    "residual": (lambda t: (t * 1).add_(ampc.full((4,), 1e-5, dtype=t.dtype)), None, 20),
}


@pytest.mark.skipif(ON_GPU, reason="written for the CPU's default device")
@pytest.mark.parametrize("what", ONTO)
def test_a_doctor_sees_additions_that_are_lost(what):
    change, rule, times = ONTO[what]
    t = ampc.ones(4, dtype=ampc.float16)
    with warnings.catch_warnings(), doctor():
        warnings.simplefilter("ignore")
        for _ in range(times):
            change(t)
    assert [r.rule for r in doctor.reports()] == ([rule] if rule else [])


def test_unscaling_by_hand_is_left_alone():
    names = surroundings()
    optimizer, model = names["optimizer"], names["model"]
    with names["autocast"]:
        loss = names["criterion"](model(names["x"]), names["y"])
    (loss * 1024).backward()
    for p in model.parameters():
        p.grad.div_(1024)
    optimizer.step()
    assert doctor.reports() == []


def test_no_gradients_says_why():
    p = ampc.nn.Parameter(ampc.ones(2))
    q = ampc.nn.Parameter(ampc.ones(2), requires_grad=False)
    for loss, params, says in ((lambda s: s.scale((p * 2).sum()), [ampc.nn.Parameter(ampc.ones(1))], "does not reach these parameters"),
                               (lambda s: s.scale((p.detach() * 2).sum()), [p], "has no graph"),
                               (lambda s: s.scale((p * 2).sum()), [p, q], r"none of the 2 parameters of Adam has a gradient \(1 do not")):
        scaler = GradScaler(DEVICE if ON_GPU else "cpu")
        loss(scaler)
        with pytest.raises(AssertionError, match=says):
            scaler.step(ampc.optim.Adam(params))
        scaler.update(2.0)
        with pytest.raises(AssertionError, match="was not called since the last update"):
            scaler.step(ampc.optim.Adam(params))
    scaler.scale((p * 2).sum())
    with pytest.raises(AssertionError, match="none of them requires one"):
        scaler.step(ampc.optim.Adam([q]))


def test_what_was_read_of_one_scale_says_nothing_of_a_new_scalers():
    GradScaler(DEVICE, init_scale=0.25).get_scale()
    assert guard._State.scale_read == 0.25
    GradScaler(DEVICE)
    assert guard._State.scale_read == 0.0


@pytest.mark.parametrize("half, words", [(True, "leave .half\\(\\) out"), (False, "torch.amp.GradScaler\\('.*'\\) once")])
def test_the_remedy_of_float16_without_a_scaler_fits_the_parameters(half, words):
    p = nn.Parameter(ampc.ones(8, 8).half() if half else ampc.ones(8, 8))
    optimizer = ampc.optim.SGD([p], lr=1e-3)
    with ampc.autocast("cuda" if ON_GPU else "cpu", dtype=ampc.float16, enabled=not half):
        loss = (p @ p.detach()).float().sum()
    loss.backward()
    with pytest.warns(doctor.MisuseWarning, match=words):
        optimizer.step()


class InnerTraining(ampc.autograd.Function):
    """Its backward trains something of its own, whose loss nobody scales."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        with ampc.enable_grad():
            own = ampc.ones(3, requires_grad=True)
            (own * own).sum().backward()
            nn.utils.clip_grad_norm_([own], 1.0)
            ampc.optim.SGD([own], lr=0.1).step()
        return grad * 2


REENTRANT = {
    "all of it": lambda model, x: ampc.utils.checkpoint.checkpoint(model, x, use_reentrant=True),
    "its beginning": lambda model, x: model[1:](ampc.utils.checkpoint.checkpoint(model[:1], x, use_reentrant=True)),
    "its end": lambda model, x: ampc.utils.checkpoint.checkpoint(model[1:], model[:1](x), use_reentrant=True),
    "a training inside": lambda model, x: InnerTraining.apply(model(x)),
}


@pytest.mark.parametrize("what", REENTRANT)
@pytest.mark.parametrize("unscale", [True, False])
def test_a_backward_inside_backward_goes_on_with_scaled_gradients(what, unscale):
    """A checkpoint that computes again in a backward of its own is nothing else than the layers themselves."""
    names = surroundings()
    model, optimizer, scaler = names["model"], names["optimizer"], names["scaler"]
    for x, y in names["batches"]:
        optimizer.zero_grad()
        with names["autocast"]:
            loss = F.cross_entropy(REENTRANT[what](model, x.requires_grad_()).float(), y)
        scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    assert {r.rule for r in doctor.reports()} == (set() if unscale else {"clip-scaled-gradients"})


@pytest.mark.parametrize("late", [False, True])
def test_a_norm_that_is_divided_by_a_scale_that_was_read_before(late):
    names = surroundings()
    names["scaler"].scale(names["criterion"](names["model"](names["x"]), names["y"])).backward()
    scale = 1.0 if late else names["scaler"].get_scale()
    norms = [p.grad.norm() / scale for p in names["model"].parameters()]
    names["scaler"].step(names["optimizer"])
    assert norms and [r.rule for r in doctor.reports() if r.rule != "scaler-without-fp16"] == (["clip-scaled-gradients"] if late else [])


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_what_clipping_scaled_gradients_does_is_true(name):
    """The report: SGD hardly moves, and the steps of those that divide by the gradients' size do not depend on the limit."""
    def moved(limit, unscale):
        ampc.manual_seed(0)
        net = nn.Linear(4, 3)
        start = net.weight.detach().clone()
        opt, scaler = getattr(ampc.optim, name)(net.parameters(), lr=0.01), GradScaler("cuda" if ON_GPU else "cpu")
        for _ in range(10):
            opt.zero_grad()
            scaler.scale(net(ampc.randn(16, 4)).square().mean()).backward()
            if unscale:
                scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(net.parameters(), limit)
            scaler.step(opt)
            scaler.update()
        return (net.weight.detach() - start).norm().item()

    with doctor.off(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        right, wrong, tenfold = moved(1.0, True), moved(1.0, False), moved(10.0, False)
    if name == "SGD":
        assert wrong < 1e-3 * right and tenfold == pytest.approx(10 * wrong, rel=0.05)
    else:  # but for eps, 1e-8 beside gradients of some 1e-6
        assert wrong > 0.5 * right and tenfold == pytest.approx(wrong, rel=0.05)
