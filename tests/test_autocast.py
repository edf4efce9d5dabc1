"""autocast: the categories, regions, casts, and the kept 16-bit weight copies."""

import gc
import os
import pickle
import subprocess
import sys
import threading
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest
from samples import CPU_ONLY, OPERATORS, SAMPLES, function, outputs, to_ampc
from where import DEVICE, FEWER, ON_GPU

import ampc
import ampc.nn.functional as F

HALF = [ampc.float16, ampc.bfloat16]


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", [n for n in OPERATORS if OPERATORS[n]["cast"] in ("low", "f32", "promote")])
def test_categories(name, dtype):
    """LOW operators run in the region's dtype, F32 ones in float32, PROMOTE ones in the widest."""
    if DEVICE == "cuda" and name in CPU_ONLY:
        pytest.skip("attention's parts do its work on a GPU")
    category = OPERATORS[name]["cast"]
    for s in SAMPLES[name]:
        for given in (ampc.float32, dtype):
            args, kwargs = to_ampc(s, given)
            with ampc.autocast(DEVICE, dtype=dtype):
                got = outputs(function(name)(*args, **kwargs))
            want = {"low": dtype, "f32": ampc.float32, "promote": given}[category]
            assert got[0].dtype is (ampc.int64 if name == "linalg_matrix_rank" else want), (given, s)


def test_mixtures_run_in_the_widest():
    a, b = ampc.ones(3), ampc.ones(3, dtype=ampc.float16)
    with ampc.autocast(DEVICE, dtype=ampc.float16):
        for f in (lambda: ampc.dot(a, b), lambda: ampc.cat([a, b]), lambda: ampc.addcmul(b, a, b), lambda: ampc.stack([b, a]),
                  lambda: ampc.zeros(3).scatter_add(0, ampc.tensor([0, 1, 2]), b), lambda: a.index_put((ampc.tensor([0]),), b[:1]),
                  lambda: ampc.where(a > 0, b, a)):
            assert f().dtype is ampc.float32


def test_bypass():
    x = ampc.rand(4, 4)
    with ampc.autocast(DEVICE, dtype=ampc.bfloat16):
        assert (x.double() @ x.double()).dtype is ampc.float64
        assert x.half().sum(dtype=ampc.float64).dtype is ampc.float64 and x.half().softmax(0, dtype=ampc.float16).dtype is ampc.float16
        assert ampc.mm(x, x, out=ampc.zeros(4, 4)).dtype is ampc.float32
        assert (x + x).dtype is ampc.float32 and (x.half() * 2).dtype is ampc.float16
        with ampc.autocast(DEVICE, enabled=False):
            assert (x @ x).dtype is ampc.float32
        assert (x @ x).dtype is ampc.bfloat16


def test_binary_cross_entropy_is_float32_on_the_cpu_and_banned_on_a_gpu():
    p = ampc.rand(4)
    with ampc.autocast(DEVICE, dtype=ampc.bfloat16):
        if ON_GPU:
            with pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
                F.binary_cross_entropy(p, p)
        else:
            half = p.bfloat16()
            loss = F.binary_cross_entropy(half, half)
            assert loss.dtype is ampc.float32 and loss == F.binary_cross_entropy(half.float(), half.float())
        with ampc.autocast(DEVICE, enabled=False):
            F.binary_cross_entropy(p, p)


@pytest.mark.skipif(ON_GPU, reason="a GPU refuses it")
def test_binary_cross_entropy_that_a_gpu_would_refuse():
    """In a region of 'cuda' that acts on the CPU, with its fix; not in one of the CPU, in one that is off, or with logits."""
    p, y, loss = ampc.rand(3), ampc.ones(3), ampc.nn.BCELoss()
    with ampc.autocast("cuda", dtype=ampc.bfloat16), ampc.doctor.errors():
        for call in (loss, F.binary_cross_entropy):
            with pytest.raises(ampc.doctor.MisuseError, match="binary_cross_entropy is called under autocast for 'cuda'.*on a GPU this call is an error(?s:.*)BCEWithLogitsLoss"):
                call(p, y)
        found = [F.binary_cross_entropy_with_logits(p.logit(), y)]
        with ampc.autocast("cuda", enabled=False):
            found.append(loss(p, y))
    with ampc.autocast("cpu", dtype=ampc.bfloat16), ampc.doctor.errors():
        found.append(loss(p, y))
    assert ampc.stack(found).allclose(-p.log().mean()) and "bce-under-autocast" not in [r.rule for r in ampc.doctor.reports()]


@pytest.mark.cpu
def test_default_dtypes_and_setters():
    assert ampc.get_autocast_dtype("cpu") is ampc.bfloat16 and ampc.get_autocast_dtype("cuda") is ampc.float16
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ampc.autocast("cuda"):
            assert ampc.is_autocast_enabled("cuda") and not ampc.is_autocast_enabled("cpu") and ampc.is_autocast_enabled()
            assert F.linear(ampc.ones(2, 2), ampc.ones(2, 2)).dtype is ampc.float16
    ampc.set_autocast_dtype("cpu", ampc.float16)
    ampc.set_autocast_enabled("cpu", True)
    try:
        assert (ampc.ones(2, 2) @ ampc.ones(2, 2)).dtype is ampc.float16
    finally:
        ampc.set_autocast_enabled("cpu", False)
        ampc.set_autocast_dtype("cpu", ampc.bfloat16)
    assert ampc.amp.is_autocast_available("cpu") and not ampc.amp.is_autocast_available("meta")
    with pytest.raises(RuntimeError):
        ampc.amp.is_autocast_available("toaster")


def test_region_forms():
    x = ampc.ones(2, 2)
    region = ampc.autocast(DEVICE, dtype=ampc.bfloat16)
    with region, region:
        with pytest.raises(KeyError), region:
            raise KeyError
        assert (x @ x).dtype is ampc.bfloat16

    @ampc.autocast(DEVICE, dtype=ampc.float16)
    def f(n):
        return (x @ x).dtype if n == 0 else f(n - 1)

    assert f(3) is ampc.float16 and not ampc.is_autocast_enabled()
    for form in (ampc.amp.autocast, ampc.autocast):
        assert isinstance(form(), ampc.amp.autocast)
    with ampc.cpu.amp.autocast():
        assert ampc.is_autocast_enabled("cpu")
    with pytest.raises(ValueError, match="string"):
        ampc.autocast(3)
    with pytest.raises(RuntimeError, match="cannot be autocast"):
        ampc.autocast("meta")
    with pytest.raises(TypeError, match="with autocast"):
        ampc.autocast(DEVICE, dtype=ampc.bfloat16)(3)
    with pytest.warns(UserWarning, match="16-bit"), ampc.autocast(DEVICE, dtype=ampc.float32):
        assert (x @ x).dtype is ampc.float32


def test_gradients_come_back_in_the_parameters_dtype():
    w, x = ampc.rand(3, 4, requires_grad=True), ampc.rand(5, 4, requires_grad=True)
    with ampc.autocast(DEVICE, dtype=ampc.float16):
        y = F.linear(x, w)
    assert y.dtype is ampc.float16 and y.grad_fn.compute_dtype is ampc.float16
    y.float().sum().backward()
    assert w.grad.dtype is ampc.float32 and x.grad.dtype is ampc.float32


def test_weight_gradient_is_not_rounded_to_16_bits():
    """A sum above float16's largest number, and one that needs more than its 11 bits."""
    w, x = ampc.ones(1, 1, requires_grad=True), ampc.full((4096, 1), 32.0)
    for hooked in (False, True):
        w.grad = None
        handle = w.register_hook(lambda g: None) if hooked else None
        with ampc.autocast(DEVICE, dtype=ampc.float16):
            y = F.linear(x, w)
        y.backward(ampc.ones_like(y))
        assert w.grad.item() == 131072.0  # torch gives inf
        if handle:
            handle.remove()


def test_forward_rounds_once(torch):
    x, w = ampc.randn(16, 64), ampc.randn(8, 64)
    for dtype in HALF:
        with ampc.autocast(DEVICE, dtype=dtype):
            got = F.linear(x, w)
        want = (x.to(dtype).double() @ w.to(dtype).double().t())
        assert (got.double() - want).abs().max().item() <= ampc.finfo(dtype).eps * want.abs().max().item() * 0.51


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.filterwarnings("ignore:mse_loss")
@pytest.mark.parametrize("shape", [(8, 5), (5,), (8, 1)], ids=str)  # of x; the target is [8, 5]
def test_mse_loss_reads_16_bits_in_place(dtype, shape):
    """No cast of operands or gradients; the loss is float32, and each gradient is rounded once, to its operand's dtype."""
    x, t = ampc.randn(*shape).to(dtype).requires_grad_(), ampc.randn(8, 5, requires_grad=True)
    with ampc.explain() as seen:
        with ampc.autocast(DEVICE, dtype=dtype):
            loss = F.mse_loss(x, t)
        dx, dt = ampc.autograd.grad(loss, (x, t), create_graph=False, retain_graph=True)
    assert not seen.casts or shape != (8, 5)
    assert (loss.dtype, dx.dtype, dt.dtype) == (ampc.float32, dtype, ampc.float32)
    wide = [v.detach().double().requires_grad_() for v in (x, t)]
    want = F.mse_loss(*wide)
    slopes = ampc.autograd.grad(want, wide, create_graph=True)
    graphed = ampc.autograd.grad(loss, (x, t), create_graph=True)
    for got, exact in [(loss, want), *zip((dx, dt), slopes), *zip(graphed, slopes)]:
        assert (got.double() - exact).abs().max().item() <= ampc.finfo(got.dtype).eps * exact.abs().max().item()


@pytest.mark.parametrize("other", [*HALF, ampc.float32, ampc.float64], ids=str)
def test_mse_loss_under_autocast_is_as_wide_as_its_operands(other):
    x, t = ampc.randn(3).to(ampc.bfloat16).requires_grad_(), ampc.randn(3).to(other).requires_grad_()
    wide = ampc.float64 if other is ampc.float64 else ampc.float32
    for reduction in ("mean", "none"):
        with ampc.autocast(DEVICE, dtype=ampc.bfloat16):
            losses = F.mse_loss(x, t, reduction=reduction), F.mse_loss(t, x, reduction=reduction)
        assert [loss.dtype for loss in losses] == [wide, wide]
        assert [g.dtype for g in ampc.autograd.grad(losses[0].sum(), (x, t))] == [ampc.bfloat16, other]
    with ampc.autocast(DEVICE, dtype=ampc.bfloat16):
        loss = F.mse_loss(x, t * 1)  # what backward keeps is not narrowed
    assert loss.dtype is wide


def test_double_backward_through_autocast():
    x, w = ampc.rand(3, 4, requires_grad=True), ampc.rand(2, 4, requires_grad=True)
    with ampc.autocast(DEVICE, dtype=ampc.bfloat16):
        y = F.linear(x, w).float().square().sum()
    gx, = ampc.autograd.grad(y, x, create_graph=True)
    gx.sum().backward()
    assert w.grad is not None and x.grad is not None and w.grad.dtype is ampc.float32


def test_backward_runs_without_autocast():
    seen = []
    x = ampc.ones(2, 2, requires_grad=True)
    with ampc.autocast(DEVICE, dtype=ampc.bfloat16):
        y = x * 1
        y.register_hook(lambda g: seen.append(ampc.is_autocast_enabled()))
        y.sum().backward()
    assert seen == [False]


# -- the kept copy -----------------------------------------------------------------------------------


def copies():
    return ampc.amp.weight_copy_bytes()


@pytest.fixture
def layer():
    ampc.clear_autocast_cache()
    net = ampc.nn.Linear(16, 16, bias=False)
    with ampc.autocast(DEVICE, dtype=ampc.bfloat16):
        net(ampc.ones(2, 16))
    assert copies() >= 512  # whole panels
    yield net


def test_copy_outlives_regions_and_no_grad(layer):
    held, stats = copies(), ampc.amp.weight_copy_stats()
    with ampc.no_grad(), ampc.autocast(DEVICE, dtype=ampc.bfloat16):
        a = layer(ampc.ones(2, 16))
    with ampc.autocast(DEVICE, dtype=ampc.bfloat16):
        b = layer(ampc.ones(2, 16))
    assert a.equal(b) and copies() == held and b.requires_grad
    now = ampc.amp.weight_copy_stats()
    assert now["packed"] == stats["packed"] and now["used"] == stats["used"] + 2 and now["copies"] == 1
    ampc.clear_autocast_cache()
    assert copies() == 0


@pytest.mark.parametrize("dtype", [ampc.bfloat16, ampc.float16])
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
@pytest.mark.parametrize("sizes", [(16, 48, 1), (33, 70, 5), (1030, 65, 40)])
def test_optimizer_renews_copies(optimizer, sizes, dtype):
    """Steps renew what products read: the same training, bit for bit, as with copies packed anew each time."""
    def train(renew):
        ampc.manual_seed(0)
        net = ampc.nn.Sequential(ampc.nn.Linear(sizes[0], sizes[1]), ampc.nn.ReLU(), ampc.nn.Linear(sizes[1], sizes[2]))
        opt = getattr(ampc.optim, optimizer)(net.parameters(), lr=1e-2)
        x = ampc.randn(7, sizes[0])
        ampc.clear_autocast_cache()
        for _ in range(4):
            before = ampc.amp.weight_copy_stats()
            with ampc.autocast(DEVICE, dtype=dtype):
                loss = net(x).float().square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            after = ampc.amp.weight_copy_stats()
            if not renew:
                ampc.clear_autocast_cache()
        return [p.detach().numpy(force=True).copy() for p in net.parameters()], {k: after[k] - before[k] for k in after}
    ours, counts = train(True)
    anew, counts_anew = train(False)
    assert all((a == b).all() for a, b in zip(ours, anew))
    kept = 4 if ON_GPU else 3  # on a GPU one copy serves forward and backward, and biases have one
    assert (counts["packed"], counts["renewed"]) == (0, kept) and (counts_anew["packed"], counts_anew["renewed"]) == (kept, kept)


@pytest.mark.parametrize("dtype", [ampc.bfloat16, ampc.float16])
def test_weight_gradients_accumulate_in_float32(dtype):
    """A second backward adds to .grad in float32, in place: never rounded to 16 bits on the way."""
    x, g = ampc.randn(40, 70).to(dtype), ampc.randn(40, 50).to(dtype)
    w = ampc.zeros(50, 70, requires_grad=True)
    before = place = None
    for _ in range(3):
        with ampc.autocast(DEVICE, dtype=dtype):
            y = ampc.nn.functional.linear(x, w)
        y.backward(g)
        assert before is None or (w.grad is before and w.grad.data_ptr() == place)
        before, place = w.grad, w.grad.data_ptr()
    a, b = g.double().numpy(force=True), x.double().numpy(force=True)
    bound = 3 * (4 * 40 + 8) * 2.0**-24 * (np.abs(a).T @ np.abs(b))
    assert w.grad.dtype is ampc.float32 and (np.abs(w.grad.double().numpy(force=True) - 3 * (a.T @ b)) <= bound).all()


def test_copy_nobody_used_is_not_renewed(layer):
    layer.weight.grad = ampc.ones(16, 16)
    opt = ampc.optim.SGD(layer.parameters(), lr=1.0)

    def renewed():
        return ampc.amp.weight_copy_stats()["renewed"]

    first = renewed()
    opt.step()
    assert renewed() == first + 1
    opt.step()
    assert renewed() == first + 1
    with ampc.no_grad(), ampc.autocast(DEVICE, dtype=ampc.bfloat16):
        got = layer(ampc.ones(1, 16))
        ampc.clear_autocast_cache()
        assert got.equal(layer(ampc.ones(1, 16)))


def test_values_a_copy_cannot_hold_are_not_renewed(layer):
    """inf in float16: where products split it, the copy is dropped."""
    opt = ampc.optim.SGD(layer.parameters(), lr=1.0)
    with ampc.no_grad(), ampc.autocast(DEVICE, dtype=ampc.float16):
        layer(ampc.ones(1, 16))
        layer.weight.grad = ampc.full((16, 16), -1e9)
        opt.step()
        assert not ampc.isfinite(layer(ampc.ones(1, 16))).any()


WRITES = {
    "add_": lambda p: p.add_(1), "data": lambda p: p.data.add_(1), "data=": lambda p: setattr(p, "data", p.data + 1),
    "copy_": lambda p: p.copy_(p + 1), "index": lambda p: p.__setitem__(0, 5.0), "view": lambda p: p.view(-1)[3:9].fill_(4),
    "fill_": lambda p: p.fill_(2), "detach": lambda p: p.detach().mul_(3), "set_": lambda p: p.set_(p.detach() * 2),
}


@pytest.mark.parametrize("write", WRITES)
def test_copy_is_never_stale(layer, write):
    with ampc.no_grad(), ampc.autocast(DEVICE, dtype=ampc.bfloat16):
        x = ampc.ones(2, 16)
        layer(x)
        WRITES[write](layer.weight)
        got = layer(x)
        ampc.clear_autocast_cache()
        assert got.equal(layer(x))


def test_copy_is_not_stale_after_an_optimizer_step(layer):
    opt = ampc.optim.SGD(layer.parameters(), lr=1.0)
    with ampc.autocast(DEVICE, dtype=ampc.bfloat16):  # within one region, where torch's cache goes stale
        losses = []
        for _ in range(3):
            loss = layer(ampc.ones(2, 16)).float().square().mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            losses.append(loss.item())
    assert losses[2] < losses[1] < losses[0]


@pytest.mark.cpu
def test_memory_that_others_may_write_is_not_kept(layer):
    array = layer.weight.detach().numpy(force=True)
    with ampc.autocast(DEVICE, dtype=ampc.bfloat16), ampc.no_grad():
        x = ampc.ones(2, 16)
        layer(x)
        array[:] = 1
        assert layer(x)[0, 0].item() == 16


def test_cache_enabled_and_limit(layer):
    ampc.clear_autocast_cache()
    with ampc.autocast(DEVICE, cache_enabled=False):
        assert not ampc.is_autocast_cache_enabled()
        layer(ampc.ones(2, 16))
        assert copies() == 0
    assert ampc.is_autocast_cache_enabled()
    ampc.amp.set_weight_copy_limit(100)
    try:
        with ampc.autocast(DEVICE, dtype=ampc.bfloat16):
            layer(ampc.ones(2, 16))
        assert copies() == 0
    finally:
        ampc.amp.set_weight_copy_limit(2**62)


def test_copy_dies_with_the_weight(layer):
    del layer.weight
    import gc
    gc.collect()
    assert copies() == 0


def test_custom_fwd_and_bwd():
    seen = {}

    class Product(ampc.autograd.Function):
        @staticmethod
        @ampc.amp.custom_fwd(device_type=DEVICE, cast_inputs=ampc.float32)
        def forward(ctx, a, b):
            seen["forward"] = (a.dtype, ampc.is_autocast_enabled())
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @ampc.amp.custom_bwd(device_type=DEVICE)
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            seen["backward"] = ampc.is_autocast_enabled()
            return g @ b.t(), a.t() @ g

    a, b = ampc.ones(2, 2, dtype=ampc.float16).requires_grad_(), ampc.ones(2, 2, requires_grad=True)
    with ampc.autocast(DEVICE, dtype=ampc.bfloat16):
        y = Product.apply(a, b)
    y.sum().backward()
    assert seen == {"forward": (ampc.float32, False), "backward": False} and y.dtype is ampc.float32 and b.grad.tolist() == [[2, 2], [2, 2]]


def test_dtypes_that_differ_in_a_functions_backward_name_the_decorators():
    def product(fwd, bwd):
        class Product(ampc.autograd.Function):
            @staticmethod
            @fwd
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                return a @ b

            @staticmethod
            @bwd
            def backward(ctx, g):
                a, b = ctx.saved_tensors
                return g @ b.t(), a.t() @ g

        a, b = ampc.ones(2, 2, requires_grad=True), ampc.ones(2, 2, requires_grad=True)
        with ampc.autocast(DEVICE, dtype=ampc.bfloat16):
            y = Product.apply(a, b)
        y.float().sum().backward()
        return b.grad.tolist()

    with pytest.raises(RuntimeError, match="got bfloat16 and float32.* backward of Product.*custom_fwd.*custom_bwd"):
        product(lambda f: f, lambda f: f)
    assert product(ampc.amp.custom_fwd(device_type=DEVICE), ampc.amp.custom_bwd(device_type=DEVICE)) == [[2, 2], [2, 2]]


def test_threads_have_their_own_regions():
    results = []

    def work(dtype):
        with ampc.autocast(DEVICE, dtype=dtype):
            for _ in range(200):
                results.append((ampc.ones(2, 2) @ ampc.ones(2, 2)).dtype is dtype)

    threads = [threading.Thread(target=work, args=(d,)) for d in HALF]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(results) and len(results) == 400


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
@pytest.mark.parametrize("rows", [96, 40])
@pytest.mark.parametrize("where", [0, 1])
def test_float16_that_two_parts_cannot_hold(bad, rows, where):
    """Where float16 is multiplied in two bfloat16 parts, an infinity is met while the product is under way, and it is made again."""
    outs = 4000 // FEWER
    x, w = ampc.randn(rows, 300).half(), ampc.randn(outs, 300).half()
    (x, w)[where][7, 299] = bad
    y, want = F.linear(x, w), x.double() @ w.double().t()
    assert y.dtype is ampc.float16 and np.array_equal(np.isfinite(y.numpy(force=True)), np.isfinite(want.numpy(force=True)))
    good = want.isfinite()
    room = 300 * ampc.finfo(ampc.float32).eps * 400 + want[good].abs() * ampc.finfo(ampc.float16).eps
    assert ((y.double()[good] - want[good]).abs() <= room).all()
    z = ampc.addmm(ampc.ones(outs).half(), x, w.t(), beta=0.5)  # nothing is added twice
    assert ((z.double()[good] - want[good] - 0.5).abs() <= room + (want[good].abs() + 1) * ampc.finfo(ampc.float16).eps).all()


class OfPython(ampc.autocast):
    """A subclass, whose objects __init__ makes; the core may make those of autocast itself."""


CALLS = {
    "cpu": (("cpu",), {}), "all by place": (("cpu", ampc.float16, True, False), {}), "all by name": ((), {
        "device_type": "cpu", "dtype": ampc.bfloat16, "enabled": True, "cache_enabled": True}),
    "off": (("cpu",), {"enabled": False}), "no number": (("cpu",), {"enabled": 0, "cache_enabled": None, "dtype": None}),
    "nothing": ((), {}), "cuda": (("cuda",), {"enabled": False}), "float32": (("cpu", ampc.float32), {}),
    "a policy": (("cpu",), {"policy": ampc.policy.default}), "another device": (("tpu",), {}), "no word": ((3,), {}),
    "no dtype": (("cpu", "bfloat16"), {}), "twice": (("cpu",), {"device_type": "cpu"}), "unknown": (("cpu",), {"dtypes": ampc.float16}),
    "too many": (("cpu", None, True, True, None), {}),
}


def made_by(kind, args, kwargs):
    """What a call makes, or how it fails, and what is warned of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            made = kind(*args, **kwargs)
        except (TypeError, ValueError, RuntimeError) as error:
            return type(error), str(error).replace("OfPython", "autocast"), told
        return made.__getstate__(), repr(made), [str(w.message) for w in told]


@pytest.mark.cpu
@pytest.mark.parametrize("around", [None, "another default", "no cache"])
@pytest.mark.parametrize("call", CALLS)
def test_regions_are_the_same_by_python_and_by_the_core(call, around):
    if around == "another default":
        ampc.set_autocast_dtype("cpu", ampc.float16)
    ampc.set_autocast_cache_enabled(around != "no cache")
    try:
        assert made_by(ampc.autocast, *CALLS[call]) == made_by(OfPython, *CALLS[call])
    finally:
        ampc.set_autocast_dtype("cpu", ampc.bfloat16)
        ampc.set_autocast_cache_enabled(True)


@pytest.mark.cpu
def test_an_init_in_the_place_of_autocasts_own_is_called(monkeypatch):
    own = ampc.autocast.__init__

    def init(self, *args, **kwargs):
        own(self, *args, **kwargs)
        self.fast_dtype = ampc.float16

    monkeypatch.setattr(ampc.autocast, "__init__", init)
    with ampc.autocast("cpu", dtype=ampc.bfloat16):
        assert F.linear(ampc.ones(2, 2), ampc.ones(2, 2)).dtype is ampc.float16
    monkeypatch.undo()
    with ampc.autocast("cpu", dtype=ampc.bfloat16):
        assert F.linear(ampc.ones(2, 2), ampc.ones(2, 2)).dtype is ampc.bfloat16


@pytest.mark.cpu
def test_regions_are_pickled_and_keep_what_was_set_on_them():
    region = ampc.autocast("cpu", dtype=ampc.float16, cache_enabled=False, policy=ampc.policy.default.changed("mine"))
    region.note = "kept"
    again = pickle.loads(pickle.dumps(region))
    assert again.__getstate__() == region.__getstate__() and again.note == "kept" and repr(again) == repr(region)
    region._enabled, region.fast_dtype = False, ampc.bfloat16
    with region:
        assert not ampc.is_autocast_enabled("cpu")


@pytest.mark.cpu
def test_a_region_that_was_not_made_says_so():
    class Hasty(ampc.autocast):
        def __init__(self):
            pass

    with pytest.raises(AttributeError, match=r"calls super\(\).__init__\(\)"), Hasty():
        pass
    with pytest.raises(RuntimeError, match="must be 'cpu' or 'cuda', got 'tpu'"):
        ampc.autocast("cpu").device = "tpu"
    with pytest.raises(TypeError, match="must be a dtype"):
        ampc.autocast("cpu").fast_dtype = 3
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del ampc.autocast("cpu").device
    with pytest.raises(ValueError, match="must be a string, got int"):
        ampc.autocast("cpu").device = 3
    with pytest.raises(TypeError, match="expected a floating point dtype"):
        ampc.set_autocast_dtype("cpu", ampc.int64)


@pytest.mark.cpu
def test_a_region_and_its_policy_are_freed_together():
    region = ampc.autocast("cpu", policy=ampc.policy.default.changed("round"))
    region._policy.region = region
    gone = weakref.ref(region._policy)
    del region
    gc.collect()
    assert gone() is None


@pytest.mark.cpu
@pytest.mark.skipif(ampc.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("first", ["torch.cuda.amp.GradScaler()", "torch.autocast('cuda')", "torch.cuda.amp.autocast()"])
def test_that_cuda_means_the_cpu_is_said_once_of_the_scripts_line(first, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"import ampc as torch\n{first}\ntorch.amp.GradScaler('cuda')\ntorch.autocast('cuda')\ntorch.cuda.amp.autocast()\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(Path(ampc.__file__).parent.parent)})
    assert done.stderr.count("there is no usable GPU") == 1 and done.stderr.startswith(f"{script}:2: UserWarning")
