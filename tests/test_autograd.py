"""Autograd: backward, grad, hooks, modes, in-place writes, Python Functions."""

import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from where import DEVICE, FEWER

import ampc
from ampc.autograd import Function, grad, gradcheck, gradgradcheck


def leaf(*values):
    return ampc.tensor(list(values), requires_grad=True)


def test_accumulation_and_zero():
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [5, 7]


def test_shared_subgraph_and_several_roots():
    x = leaf(2.0)
    y = x * x
    z = y * y + y
    z.backward()
    assert x.grad.item() == 4 * 8 + 2 * 2
    a, b = leaf(1.0), leaf(2.0)
    ampc.autograd.backward([a * 2, (a * b).sum()], [ampc.tensor([1.0]), None])
    assert a.grad.item() == 4 and b.grad.item() == 1


def test_grad_captures_without_accumulating():
    x, y = leaf(3.0), leaf(4.0)
    gx, = grad((x * y).sum(), x)
    assert gx.item() == 4 and x.grad is None and y.grad is None
    mid = x * 2
    gm, = grad((mid * mid).sum(), [mid])
    assert gm.item() == 12
    with pytest.raises(RuntimeError, match="not used"):
        grad(x.sum(), [y])
    assert grad(x.sum(), [y], allow_unused=True) == (None,)
    assert grad(x.sum(), [x, y], materialize_grads=True)[1].item() == 0


def test_higher_orders():
    x = ampc.tensor(0.7, dtype=ampc.float64, requires_grad=True)
    y = x.sin() * x.exp()
    for _ in range(2):
        y, = grad(y, x, create_graph=True)
    import math
    assert abs(y.item() - 2 * math.cos(0.7) * math.exp(0.7)) < 1e-12
    x = leaf(2.0)
    (x**3).sum().backward(create_graph=True)
    x.grad.sum().backward()
    assert x.grad.item() == 12 + 12


def test_second_backward_is_refused_with_reason():
    x = leaf(1.0)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="retain_graph"):
        y.backward()
    z = (x * x).sum()
    z.backward(retain_graph=True)
    z.backward()


def test_errors_of_backward():
    with pytest.raises(RuntimeError, match="does not require gradients"):
        ampc.ones(1).backward()
    with pytest.raises(RuntimeError, match="one element"):
        (leaf(1.0, 2.0) * 2).backward()
    with pytest.raises(RuntimeError, match="shape"):
        (leaf(1.0, 2.0) * 2).backward(ampc.ones(3))
    with pytest.raises(RuntimeError, match="floating point"):
        ampc.ones(2, dtype=ampc.int64).requires_grad_()


def test_version_check_names_the_operator():
    x = leaf(1.0, 2.0)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="backward of exp .* modified in place"):
        y.sum().backward()
    a = x * 1
    b = a * a
    a.data.mul_(5)  # .data has a counter of its own
    b.sum().backward()
    c = x * 1
    d = c * c
    c.detach().mul_(5)  # detach() shares it
    with pytest.raises(RuntimeError, match="backward of mul"):
        d.sum().backward()


def test_in_place_on_leaves_is_refused():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="leaf"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="leaf"):
        x[:1].mul_(2)
    with ampc.no_grad():
        x.add_(1)
    assert x.tolist() == [2, 3]
    with pytest.raises(RuntimeError, match="unbind"):
        (x * 1).unbind(0)[0].add_(1)


def test_in_place_on_views(torch):
    def run(T):
        a = T.arange(6.0).requires_grad_()
        b = a * 2
        v = b.view(2, 3)
        w = b[1:3]
        w.mul_(3)  # rewrites the history of b, and so of v
        v[1] = v[0] * 2
        b[5] = 7
        b.t().add_(1) if T is ampc else b.add_(1)
        (v * T.arange(6.0).view(2, 3)).sum().backward()
        return a.grad.tolist(), b.tolist(), v.requires_grad

    assert run(ampc) == run(torch)


def test_in_place_brings_gradients_to_a_plain_base(torch):
    def run(T):
        w = T.tensor([2.0, 3.0], requires_grad=True)
        x = T.ones(3)
        early = x[0:1]
        x[1:] = w * 2
        (x * x).sum().backward()
        return w.grad.tolist(), early.requires_grad, x.tolist()

    assert run(ampc) == run(torch)


def test_in_place_operators_gradcheck():
    x = ampc.rand(4, dtype=ampc.float64).add(0.5).requires_grad_()
    y = ampc.rand(4, dtype=ampc.float64).add(0.5).requires_grad_()

    def f(a, b):
        c = a * 1
        c.mul_(b).add_(a)
        c[1:3].mul_(b[:2])
        c.view(2, 2)[0] = b[:2] * 2
        c.masked_fill_(ampc.tensor([False, False, False, True]), 2.0)
        return c.sqrt_()

    assert gradcheck(f, (x, y)) and gradgradcheck(f, (x, y))


def test_hooks():
    x = leaf(1.0, 2.0)
    seen = []
    h = x.register_hook(lambda g: seen.append(g.tolist()))
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.retain_grad()
    x.register_post_accumulate_grad_hook(lambda t: seen.append(("after", t.grad.tolist())))
    y.sum().backward()
    assert seen == [[20, 20], ("after", [20, 20])] and y.grad.tolist() == [10, 10]
    h.remove()
    (x * 1).sum().backward()
    assert len(seen) == 3
    def boom(g):
        raise KeyError("from a hook")
    x.register_hook(boom)
    with pytest.raises(KeyError, match="from a hook"):
        (x * 1).sum().backward()


def test_modes():
    x = leaf(1.0)
    with ampc.no_grad():
        assert not (x * 2).requires_grad
        with ampc.enable_grad():
            assert (x * 2).requires_grad

    @ampc.no_grad()
    def f():
        return ampc.is_grad_enabled()

    @ampc.no_grad()
    def g():
        yield ampc.is_grad_enabled()

    assert f() is False and list(g()) == [False] and ampc.is_grad_enabled()
    with ampc.set_grad_enabled(False):
        assert not ampc.is_grad_enabled()
    with ampc.inference_mode():
        y = x * 2
    assert y.is_inference()
    with pytest.raises(RuntimeError, match="inference_mode"):
        y.add_(1)
    with ampc.inference_mode():
        made = [ampc.tensor(1.0), ampc.tensor(np.ones(2)), ampc.as_tensor([1.0]), ampc.from_numpy(np.ones(2)), ampc.from_dlpack(np.ones(2)),
                x.new_tensor([1.0]), ampc.Tensor([1.0]), ampc.get_rng_state(), ampc.zeros(2), x.clone()]
    assert all(t.is_inference() for t in made)
    with pytest.raises(ZeroDivisionError), ampc.no_grad():
        raise ZeroDivisionError
    assert ampc.is_grad_enabled()


def test_modes_are_per_thread():
    seen = []
    with ampc.no_grad(), ampc.autocast(DEVICE):
        t = threading.Thread(target=lambda: seen.append((ampc.is_grad_enabled(), ampc.is_autocast_enabled())))
        t.start()
        t.join()
    assert seen == [(True, False)]


def test_detach_and_data():
    x = leaf(1.0)
    assert not x.detach().requires_grad and x.detach().data_ptr() == x.data_ptr()
    x.data = ampc.tensor([5.0, 6.0])
    assert x.tolist() == [5, 6] and x.is_leaf and x.requires_grad
    y = (x * 2).detach_()
    assert y.is_leaf and not y.requires_grad


def test_python_function():
    class Square(Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.save_for_backward(x)
            ctx.scale = scale
            return x * x * scale

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return 2 * x * g * ctx.scale, None

    x = ampc.rand(3, dtype=ampc.float64).requires_grad_()
    assert gradcheck(lambda t: Square.apply(t, 3.0), (x,)) and gradgradcheck(lambda t: Square.apply(t, 3.0), (x,))
    y = Square.apply(x, 2.0)
    assert y.grad_fn.name() == type(y.grad_fn).__name__ == "SquareBackward"

    class Exp(Function):
        @staticmethod
        def forward(x):
            return x.exp(), x + 1

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output[0])

        @staticmethod
        def backward(ctx, g, h):
            y, = ctx.saved_tensors
            return g * y + h

    assert gradcheck(Exp.apply, (x,)) and gradgradcheck(Exp.apply, (x,))

    class Bad(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            raise ValueError("inside backward")

    with pytest.raises(ValueError, match="inside backward"):
        Bad.apply(x).sum().backward()


def test_a_function_that_records_nothing_saves_nothing():
    class Scale(Function):
        @staticmethod
        def forward(ctx, x, holder):
            ctx.save_for_backward(x, holder)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2, None

    holder = object()  # as a layer keeps its weight in
    assert Scale.apply(ampc.ones(1), holder).tolist() == [2]
    with ampc.no_grad():
        assert Scale.apply(ampc.ones(1, requires_grad=True), holder).tolist() == [2]
    with pytest.raises(TypeError, match="save_for_backward keeps Tensors or None, got object"):
        Scale.apply(ampc.ones(1, requires_grad=True), holder)
def test_function_context_is_collected():
    class Keep(Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            return g * 2

    y = Keep.apply(ampc.ones(2, requires_grad=True))
    y.own = y
    ref = weakref.ref(y)
    del y
    gc.collect()
    assert ref() is None


def test_gradient_dtype_follows_the_leaf():
    x = ampc.ones(2, 3, requires_grad=True)
    y = x.half() * 2
    y.sum().backward()
    assert x.grad.dtype is ampc.float32


def test_million_operations():
    x = ampc.ones(1, requires_grad=True)
    y = x
    for _ in range(1_000_000 // FEWER):
        y = -y
    y.backward()
    assert x.grad.item() == 1
    del y


def test_two_threads_train_two_models():
    def train(results, k):
        ampc_net = ampc.nn.Linear(32, 32)
        with ampc.no_grad():
            ampc_net.weight.fill_(0.01 * (k + 1))
            ampc_net.bias.fill_(0.0)
        opt = ampc.optim.SGD(ampc_net.parameters(), lr=0.1)
        x = ampc.ones(600, 32)
        for _ in range(40 // FEWER):
            opt.zero_grad()
            with ampc.autocast(DEVICE, enabled=k == 1):
                loss = (ampc_net(x) - 1).square().mean()
            loss.backward()
            opt.step()
        results[k] = loss.item()

    together, alone = {}, {}
    threads = [threading.Thread(target=train, args=(together, k)) for k in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k in range(2):
        train(alone, k)
    assert together == alone


@pytest.mark.cpu
def test_grad_makes_only_what_is_asked_for():
    """The gradient of a large weight is not made for autograd.grad(y, [x])."""
    code = """
import ampc
x, w = ampc.ones(2, 2000, requires_grad=True), ampc.ones(2000, 2000, requires_grad=True)
y = ampc.nn.functional.linear(x, w)
before = ampc._C._memory()["peak"]
(g,) = ampc.autograd.grad(y, [x], ampc.ones_like(y), retain_graph=True)
print(ampc._C._memory()["peak"] - before, g.sum().item())
both = ampc.autograd.grad(y, [x, w], ampc.ones_like(y))
print(both[0].equal(g), both[1].sum().item())
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert int(out[0]) < 1 << 20 and float(out[1]) == 2 * 2000 * 2000 and out[2] == "True" and float(out[3]) == 2 * 2000 * 2000


def test_gradients_where_a_formula_would_divide_zeros_or_overflow():
    """Of an angle and a length at the origin, and of running logarithms whose terms lie hundreds apart."""
    x, y = ampc.tensor([0.0, 3.0, 300.0]).requires_grad_(), ampc.tensor([0.0, 4.0, 400.0]).requires_grad_()
    for f, dx, dy in ((ampc.atan2, [0.0, 4 / 25, 4 / 2500], [0.0, -3 / 25, -3 / 2500]), (ampc.hypot, [0.0, 0.6, 0.6], [0.0, 0.8, 0.8])):
        x.grad = y.grad = None
        f(x, y).sum().backward()
        assert x.grad.tolist() == pytest.approx(dx) and y.grad.tolist() == pytest.approx(dy)
    for dtype in (ampc.float64, ampc.float32, ampc.bfloat16, ampc.float16):
        z = ampc.tensor([300.0, -300.0, 0.0, 300.0, -300.0, -float("inf")], dtype=dtype).requires_grad_()
        z.logcumsumexp(0).backward(ampc.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], dtype=dtype))
        assert ampc.isfinite(z.grad).all()
        if dtype.itemsize > 2:  # 16 bits round the results that backward reads
            assert z.grad.tolist() == pytest.approx([35.0, 0.0, 0.0, 28.0, 0.0, 0.0], abs=1e-9, rel=1e-4)


def test_a_gradient_that_is_assigned_fits_its_tensor():
    """As in torch: the shape, the dtype and the device are the tensor's."""
    p = ampc.ones(3, requires_grad=True)
    for given, error, text in ((ampc.ones(4), RuntimeError, r"shape and dtype: float32 \[3\], got float32 \[4\]"),
                               (ampc.ones(3).half(), RuntimeError, "got float16"), (1.0, TypeError, "must be a Tensor or None, got float"),
                               (p, RuntimeError, "cannot be its own"),
                               (ampc.ones(3, device="meta"), RuntimeError, f"the tensor's device, {p.device}, got one on meta; bring it there")):
        with pytest.raises(error, match=text):
            p.grad = given
        assert p.grad is None
    p.grad = ampc.ones(3)
    assert p.grad.tolist() == [1, 1, 1]


def test_a_hook_gives_the_dtype_it_was_given():
    x = ampc.ones(2, requires_grad=True)
    handle = x.register_hook(lambda g: g.double())
    with pytest.raises(RuntimeError, match="returned a float64 gradient, expected float32"):
        (x * 2).sum().backward()
    assert x.grad is None
    handle.remove()
    y = x * 2
    y.register_hook(lambda g: g.half())
    with pytest.raises(RuntimeError, match="returned a float16 gradient, expected float32"):
        y.sum().backward()


def nan_in_backward():
    x = ampc.zeros(1, requires_grad=True)
    (x.sqrt() * 0).sum().backward()
    return x.grad


def test_anomaly_detection_stops_at_the_operator_that_gives_a_nan():
    assert nan_in_backward().isnan().all() and not ampc.is_anomaly_enabled()
    with ampc.autograd.detect_anomaly():
        assert ampc.is_anomaly_enabled() and ampc.is_anomaly_check_nan_enabled()
        ampc.ones(2, requires_grad=True).exp().sum().backward()
        with pytest.raises(RuntimeError, match="Function 'sqrt' returned nan values in its 0th output.*ampc.doctor"):
            nan_in_backward()
        with ampc.autograd.set_detect_anomaly(False):
            nan_in_backward()
        assert ampc.is_anomaly_enabled()
    with ampc.autograd.detect_anomaly(check_nan=False):
        assert nan_in_backward().isnan().all() and ampc.is_anomaly_enabled() and not ampc.is_anomaly_check_nan_enabled()
    assert not ampc.is_anomaly_enabled()
    ampc.autograd.set_detect_anomaly(True)
    try:
        with pytest.raises(RuntimeError, match="sqrt"):
            nan_in_backward()
    finally:
        ampc.set_anomaly_enabled(False)
    assert nan_in_backward().isnan().all()
    with pytest.raises(TypeError, match="bools, got str"):
        ampc.autograd.set_detect_anomaly("yes")


@pytest.mark.parametrize("materialize", [True, False])
def test_a_function_is_called_where_no_gradient_comes_to_its_results(materialize):
    """With zeros, or with None where it asks for that, as in torch: what backward does beside gradients is done."""
    class First(ampc.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, *grads):
            met.append([g if g is None else g.tolist() for g in grads])
            return ampc.ones(2)

    class Silent(ampc.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x + 1

        @staticmethod
        def backward(ctx, grad):
            return None

    met = []
    x = ampc.ones(2, requires_grad=True)
    Silent.apply(First.apply(x)[0]).sum().backward()
    assert met == [[[0, 0], [0, 0]] if materialize else [None, None]]
    assert x.grad.tolist() == [1, 1]


def test_a_gradient_follows_its_leaf_to_more_dimensions():
    x = ampc.ones(1, 4, requires_grad=True)
    y = x * 2
    with ampc.no_grad():
        x.unsqueeze_(0)
    y.sum().backward()
    assert x.grad.shape == (1, 1, 4)


@pytest.mark.parametrize("shape", [(3,), (4, 2), (1, 4)])
def test_a_leaf_of_another_shape_takes_no_gradient(shape):
    x = ampc.ones(2, 4, requires_grad=True)
    y = x * 2
    x.data = ampc.ones(shape)
    with pytest.raises(RuntimeError, match=r"gradient of a leaf has shape \[2, 4\], the leaf itself has"):
        y.sum().backward()
    assert x.grad is None


@pytest.mark.parametrize("saved", ["leaf", "input", "output"])
def test_what_a_function_saved_is_freed_by_backward(saved):
    class Square(ampc.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * x
            ctx.save_for_backward(y if saved == "output" else x)
            return y

        @staticmethod
        def backward(ctx, g):
            return ctx.saved_tensors[0] * g

    x = ampc.ones(2, requires_grad=True)
    y = Square.apply(x * 1 if saved == "input" else x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.sum().backward()
    assert x.grad.tolist() == [2, 2]


@pytest.mark.parametrize("turn", [lambda x: x.unsqueeze_(-2), lambda x: x.t_(), lambda x: x.transpose_(0, 1), lambda x: x.squeeze_(0)])
def test_a_new_geometry_is_recorded_without_gradients_too(turn):
    """Gradients find back to the geometry that the history was made for."""
    weight = ampc.tensor([[1.0, 2.0, 3.0]])
    x = ampc.ones(1, 3, requires_grad=True)
    y = ampc.hstack([x, x]) * ampc.hstack([weight, -weight])
    with ampc.no_grad():
        turn(y)
    (y * y).sum().backward()
    assert x.grad.tolist() == [[4, 16, 36]]


def test_gradients_with_a_graph_have_memory_of_their_own():
    x = ampc.ones(2, requires_grad=True)
    x.sum().square().backward(create_graph=True)
    assert x.grad.stride() == (1,) and x.grad.requires_grad
    ampc.nn.utils.clip_grad_norm_([x], 1.0)
    given, y = ampc.ones(2, requires_grad=True) * 1, ampc.ones(2, requires_grad=True)
    y.backward(given, create_graph=True)
    y.grad.data.zero_()
    assert given.tolist() == [1, 1]
    z = ampc.ones(2, requires_grad=True) * 1
    z.retain_grad()
    z.backward(given, create_graph=True)
    assert z.grad is not given and z.grad.data_ptr() != given.data_ptr()
    x.grad = y.grad = None  # a gradient with a graph and its leaf hold each other, as in torch


@pytest.mark.parametrize("call", [
    "lib.autograd.grad((), x, allow_unused=True)", "lib.autograd.grad([], [x, x * 2], [], allow_unused=True, create_graph=True)",
    "lib.autograd.grad((), (x,))", "lib.autograd.grad((), x, materialize_grads=True)", "lib.autograd.backward(())", "lib.autograd.backward((), inputs=[x])"])
def test_gradients_of_nothing(torch, call):
    def found(lib):
        x = lib.ones(2, requires_grad=True)
        try:
            given = eval(call, {"lib": lib, "x": x})
        except RuntimeError:
            return "RuntimeError"
        return given and [g if g is None else g.tolist() for g in given], x.grad

    assert found(ampc) == found(torch)


TWICE = {
    "affine_grid": lambda lib, x: lib.nn.functional.affine_grid(x, (1, 1, 2, 2), align_corners=False),
    "interpolate": lambda lib, x: lib.nn.functional.interpolate(x, size=(5,), mode="linear"),
    "tril": lambda lib, x: lib.tril(x), "triu": lambda lib, x: lib.triu(x), "deg2rad": lambda lib, x: lib.deg2rad(x),
    "trapezoid": lambda lib, x: lib.trapezoid(x, dx=0.5), "gradient": lambda lib, x: lib.gradient(x, spacing=0.5, edge_order=2, dim=2)[0],
    "index_add": lambda lib, x: x.index_add(0, lib.tensor([0]), lib.ones(1, 2, 3)),
    "scatter_add": lambda lib, x: x.scatter_add(0, lib.zeros(1, 1, 1, dtype=lib.int64), lib.ones(1, 1, 1)),
    "fill_": lambda lib, x: (x + x).fill_(2), "copy_": lambda lib, x: (x + x).copy_(lib.ones(1, 2, 3)),
}


@pytest.mark.parametrize("name", TWICE)
def test_backward_runs_twice_where_nothing_of_an_operand_is_kept(name):
    """As in torch, without retain_graph: tables and factors that an operator makes of its arguments stay."""
    torch = pytest.importorskip("torch")
    grads = []
    for lib in (torch, ampc):
        x = lib.arange(6.0).reshape(1, 2, 3).requires_grad_()
        y = TWICE[name](lib, x)
        y.sum().backward()
        y.sum().backward()
        grads.append(x.grad.cpu().numpy())
    assert np.allclose(*grads, rtol=1e-6)
