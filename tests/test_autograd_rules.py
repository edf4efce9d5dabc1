"""Autograd's rules for decorators, hooks, Functions and functional derivatives, where torch has the same."""

import pytest

import ampc
from ampc.autograd import Function, grad


def leaf(*values):
    return ampc.tensor(list(values), requires_grad=True)


def test_a_decorated_generator_meets_what_its_consumer_throws():
    class Again(Exception):
        pass

    met = []

    @ampc.no_grad()
    def numbers():
        for i in range(3):
            try:
                yield i
            except Again:
                met.append(ampc.is_grad_enabled())
            except GeneratorExit:
                met.append(ampc.is_grad_enabled())
                raise

    body = numbers()
    assert next(body) == 0 and body.throw(Again()) == 1 and ampc.is_grad_enabled()
    body.close()
    assert met == [False, False] and ampc.is_grad_enabled()


def test_a_decorated_class_makes_its_objects_in_the_mode():
    class Made:
        def __init__(self):
            self.first = ampc.is_grad_enabled()

        def now(self):
            return ampc.is_grad_enabled()

    with pytest.warns(FutureWarning, match="deprecated"):
        make = ampc.no_grad()(Made)
    assert isinstance(make(), Made) and not make().first and make().now()


def test_setup_context_gets_the_defaults_of_forward():
    class Power(Function):
        @staticmethod
        def forward(x, n=3):
            return x**n

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.n = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, g):
            return g * ctx.n * ctx.saved_tensors[0] ** (ctx.n - 1), None

    for made, slope in ((Power.apply, 12), (lambda x: Power.apply(x, 2), 4), (lambda x: Power.apply(x, n=4), 32)):
        x = leaf(2.0)
        assert grad(made(x).sum(), x)[0].tolist() == [slope]


def test_a_backward_that_is_once_differentiable_refuses_a_second():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @ampc.autograd.function.once_differentiable
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    x = leaf(3.0)
    slope, = grad((Square.apply(x) ** 2).sum(), x, create_graph=True)
    assert slope.tolist() == [108] and slope.requires_grad
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def test_hooks_of_a_tensor_come_before_those_of_its_node():
    order = []

    def note(what, factor):
        def hook(g):
            order.append(what)
            return tuple(factor * each for each in g) if isinstance(g, tuple) else factor * g
        return hook

    x = leaf(1.0)
    y = x.clone()
    y.grad_fn.register_prehook(note("node", 2))
    y.register_hook(note("tensor", 3))
    accumulator = y.grad_fn.next_functions[0][0]
    accumulator.register_hook(lambda given, grads: order.append("after node"))
    accumulator.register_prehook(note("leaf's node", 5))
    x.register_hook(note("leaf", 7))
    x.register_post_accumulate_grad_hook(lambda p: order.append("after leaf"))
    y.sum().backward(retain_graph=True)
    assert order == ["tensor", "node", "leaf", "leaf's node", "after leaf", "after node"] and x.grad.tolist() == [210]
    order.clear()
    assert grad(y.sum(), x, retain_graph=True)[0].tolist() == [42] and order == ["tensor", "node", "leaf"]
    order.clear()
    assert grad(y.sum(), y, retain_graph=True)[0].tolist() == [3] and order == ["tensor"]
    order.clear()
    y.sum().backward(inputs=(y,))
    assert order == ["tensor", "node"] and y.grad.tolist() == [3]


def test_a_post_accumulate_hook_returns_nothing():
    x = leaf(1.0)
    x.register_post_accumulate_grad_hook(lambda p: p.grad)
    with pytest.raises(RuntimeError, match="must return None"):
        (2 * x).sum().backward()


@pytest.mark.parametrize("what", ["jacobian", "hessian", "jvp", "vjp", "hvp", "vhp"])
def test_functional_derivatives_with_create_graph_are_recorded_under_no_grad(what):
    x = leaf(2.0, 3.0)
    given = (ampc.ones(2),) if what in ("jvp", "hvp", "vhp") else ()
    with ampc.no_grad():
        found = getattr(ampc.autograd.functional, what)(lambda t: (t**3).sum(), x, *given, create_graph=True)
    found = found[-1] if isinstance(found, tuple) else found
    assert found.requires_grad
    want = {"jacobian": [12, 18], "vjp": [12, 18], "jvp": [12, 18]}.get(what, [6, 6])
    assert grad(found.sum(), x)[0].tolist() == want


def test_a_tensor_added_to_a_product_with_beta_0_has_a_gradient_of_zeros():
    shapes = {"addmm": [(2, 2), (2, 3), (3, 2)], "baddbmm": [(4, 2, 2), (4, 2, 3), (4, 3, 2)], "addbmm": [(2, 2), (4, 2, 3), (4, 3, 2)],
              "addmv": [(2,), (2, 3), (3,)], "addr": [(2, 3), (2,), (3,)]}
    for name, given in shapes.items():
        x, a, b = (ampc.full(shape, value, requires_grad=True) for shape, value in zip(given, (float("nan"), 1.0, 1.0)))
        y = getattr(ampc, name)(x, a, b, beta=0)
        y.sum().backward()
        assert not y.isnan().any() and x.grad.tolist() == ampc.zeros(given[0]).tolist(), name
        assert a.grad.min() > 0 and b.grad.min() > 0, name
        assert getattr(ampc, name)(x, a.detach(), b.detach(), beta=0).requires_grad, name


@pytest.mark.parametrize("function", ["relu", "relu6", "hardtanh", "hardshrink", "softshrink"])
def test_slopes_that_are_flat_by_parts_have_slopes_of_zeros(function):
    x = leaf(0.75, -2.0, 0.0, 7.0)
    slope, = grad(getattr(ampc.nn.functional, function)(x).sum(), x, create_graph=True)
    assert slope[0] == 1 and slope.requires_grad
    second, = grad(slope, x, ampc.full((4,), float("inf")))
    assert second.tolist() == [0, 0, 0, 0]


def test_the_slope_of_threshold_has_a_slope_of_zeros():
    x = leaf(1.0, -2.0)
    slope, = grad(ampc.nn.functional.threshold(x, 0.5, 9.0).sum(), x, create_graph=True)
    assert slope.tolist() == [1, 0] and grad(slope.sum(), x)[0].tolist() == [0, 0]


BY_PIECES = ["leaky_relu(x)", "hardsigmoid(x)", "rrelu(x)", "rrelu(x, training=True)", "prelu(x, w[0, 0, 0, :1])", "max_pool1d(x[0], 2)", "max_pool2d(x, 2)", "max_pool3d(x, 1)",
             "adaptive_max_pool2d(x, 2)", "avg_pool1d(x[0], 2)", "avg_pool2d(x, 2)", "avg_pool3d(x, 1)", "adaptive_avg_pool2d(x, 2)", "interpolate(x, 2, mode='area')",
             "fractional_max_pool2d(x, 2, 2, return_indices=True, _random_samples=w[:, :, 0, :2])[0]",
             "pad(x[0], (1, 1), 'reflect')", "pad(x[0], (1, -1), 'replicate')", "nll_loss(x[0, 0], n)"]


def second_by_pieces(lib, call):
    """(values of the slope, of its slope, and of that of a slope with a history of its own), each by x."""
    x = lib.linspace(-4.0, 4.0, 16).reshape(1, 1, 4, 4).requires_grad_()
    given = {"f": lib.nn.functional, "x": x, "w": lib.full((1, 1, 4, 4), 0.25), "n": lib.tensor([0, 1, 2, 3])}
    slope, = lib.autograd.grad(eval("f." + call, given).sum(), x, create_graph=True)
    factor = lib.ones(1, requires_grad=True)
    other, = lib.autograd.grad((eval("f." + call, given) * factor).sum(), x, create_graph=True)
    assert slope.requires_grad and other.requires_grad
    return slope.tolist(), lib.autograd.grad(slope.sum(), x)[0].tolist(), lib.autograd.grad(other.sum(), [x, factor])[0].tolist()


@pytest.mark.parametrize("call", BY_PIECES)
def test_a_slope_that_is_constant_by_pieces_is_recorded(call):
    slope, *second = second_by_pieces(ampc, call)
    assert second == 2 * [ampc.zeros(1, 1, 4, 4).tolist()]
    torch = pytest.importorskip("torch")
    if not call.startswith(("hardsigmoid", "fractional")) and "training" not in call:  # torch has no derivative of that slope; draws
        theirs, *their_second = second_by_pieces(torch, call)
        assert ampc.allclose(ampc.tensor(slope), ampc.tensor(theirs)) and second == their_second


@pytest.mark.parametrize("p", [2, 2.5, 3, 4])
def test_the_slope_of_a_norm_of_zeros_has_a_slope_of_zeros(p):
    x = leaf(0.0, 0.0)
    slope, = grad(x.norm(p), x, create_graph=True)
    second, = grad(slope.sum(), x)
    assert slope.tolist() == [0, 0] and second.tolist() == [0, 0]


SAVES = {"lerp": "lib.lerp(a, b, c)", "lerp by a number": "lib.lerp(a, b, 0.3)", "addcmul": "lib.addcmul(a, b, c)", "addcdiv": "lib.addcdiv(a, b, c)", "fmod": "lib.fmod(a, b)",
         "remainder": "lib.remainder(a, b)", "hypot": "lib.hypot(a, b)", "copysign": "lib.copysign(a, b)", "xlogy": "lib.xlogy(a, b)", "mul": "a * b", "div": "a / b", "pow": "a ** b"}


def saved(lib, expression, wanted):
    """The names of the operands, and of the result, that are kept for the gradient of one operand alone; None where there is none."""
    a, b, c = tensors = [lib.full((2,), 0.5 + i, requires_grad=i == wanted) for i in range(3)]
    kept = []
    with lib.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = eval(expression)
    if not y.requires_grad:
        return None
    y.sum().backward()
    names = {t.data_ptr(): name for t, name in zip([*tensors, y], "abcy")}
    return sorted(names[t.data_ptr()] for t in kept), tensors[wanted].grad.tolist()


@pytest.mark.parametrize("operator", SAVES)
def test_no_more_is_saved_than_the_gradient_needs(operator):
    torch = pytest.importorskip("torch")
    for wanted in range(3):
        mine, theirs = saved(ampc, SAVES[operator], wanted), saved(torch, SAVES[operator], wanted)
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert set(mine[0]) <= set(theirs[0]) and ampc.allclose(ampc.tensor(mine[1]), ampc.tensor(theirs[1])), (operator, "abc"[wanted])
