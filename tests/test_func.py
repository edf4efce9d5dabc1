"""ampc.func: derivatives of functions keep the history of what else took part, as torch.func's do."""

import copy

import numpy as np
import pytest

import ampc
from ampc import func


def weight(value=2.0):
    return ampc.tensor([value], requires_grad=True)


def slope(of):
    """The gradient of what ``of`` makes of a parameter, through ampc.func and beside it."""
    w = weight()
    (of(w).sum() + w.sum()).backward()
    return w.grad.tolist()


def test_a_parameter_that_a_function_uses_gets_its_gradient():
    one = ampc.ones(1)
    assert slope(lambda w: func.grad(lambda a: (a * a * w).sum())(one)) == [3]
    assert slope(lambda w: func.grad_and_value(lambda a: (a * w * w).sum())(one)[1]) == [5]
    assert slope(lambda w: func.grad(lambda a: ((a * a).sum(), a * w * 7), has_aux=True)(one)[1]) == [8]
    assert slope(lambda w: func.vjp(lambda a: a * w, one)[0]) == [2]
    assert slope(lambda w: func.vjp(lambda a: a * w, one)[1](one)[0]) == [2]
    assert slope(lambda w: func.vjp(lambda a: a * 5, one)[1](w)[0]) == [6]
    assert slope(lambda w: func.jvp(lambda a: a * a * w, (one,), (one,))[1]) == [3]
    assert slope(lambda w: func.jacrev(lambda a: a ** 3 * w)(one)) == [4]
    assert slope(lambda w: func.hessian(lambda a: (a ** 3 * w).sum())(one)) == [7]


def test_derivatives_within_derivatives():
    one = ampc.tensor(1.0)
    sine = -float(ampc.sin(one))
    for inner in (lambda x: func.vjp(ampc.sin, x)[1](one)[0], lambda x: func.jvp(ampc.sin, (x,), (one,))[1], func.grad(ampc.sin),
                  func.jacrev(ampc.sin)):
        assert float(func.grad(inner)(one)) == pytest.approx(sine)
    assert float(func.grad(func.hessian(lambda y: y ** 3))(one)) == pytest.approx(6)


def test_a_function_returns_more_than_what_is_differentiated():
    two = ampc.full((2,), 2.0)

    def f(a):
        return a * a, {"more": a + 1}

    value, slope_of, aux = func.jvp(f, (two,), (ampc.ones(2),), has_aux=True)
    assert value.tolist() == [4, 4] and slope_of.tolist() == [4, 4] and aux["more"].tolist() == [3, 3]
    matrix, aux = func.jacrev(f, has_aux=True)(two)
    assert matrix.tolist() == [[4, 0], [0, 4]] and aux["more"].tolist() == [3, 3] and not aux["more"].requires_grad
    (matrix, other), aux = func.jacfwd(lambda a, b: (a * b, a), (0, 1), has_aux=True)(two, 3 * two)
    assert matrix.tolist() == [[6, 0], [0, 6]] and other.tolist() == [[2, 0], [0, 2]] and aux.tolist() == [2, 2]
    assert slope(lambda w: func.jvp(lambda a: (a * a, a * w * 7), (ampc.ones(1),), (ampc.ones(1),), has_aux=True)[2]) == [8]
    for call in (lambda: func.jvp(lambda a: a, (two,), (two,), has_aux=True), lambda: func.jacrev(lambda a: a, has_aux=True)(two)):
        with pytest.raises(RuntimeError, match="must return two things"):
            call()


def test_nothing_is_recorded_without_need():
    one = ampc.ones(1)
    grads, (value, aux) = func.grad_and_value(lambda a: ((a * a).sum(), a * 2), has_aux=True)(one)
    value2, back = func.vjp(lambda a: a * a, one)
    each = [grads, value, aux, value2, *back(one), *func.jvp(lambda a: a * a, (one,), (one,)), func.jacrev(ampc.exp)(one)]
    w = weight()
    with ampc.no_grad():
        each.append(func.grad(lambda a: (a * a * w).sum())(one))
    assert not any(t.requires_grad for t in each)


def test_what_does_not_depend_on_its_argument_has_the_gradient_zero():
    assert func.grad(lambda a: ampc.tensor(1.0))(ampc.ones(2)).tolist() == [0, 0]
    assert func.vjp(lambda a: ampc.ones(2), ampc.ones(2))[1](ampc.ones(2))[0].tolist() == [0, 0]


def test_a_graph_of_many_ways_is_gone_through_once():
    def doubled(a):
        for _ in range(60):  # 2 ** 60 ways
            a = a + a * 1
        return a.sum()

    assert func.grad(doubled)(ampc.ones(1)).item() == 2.0 ** 60


def test_nodes_are_equal_where_they_are_the_same():
    y = ampc.ones(1, requires_grad=True) * 2
    assert y.grad_fn == y.grad_fn and y.grad_fn != (y * 1).grad_fn and len({y.grad_fn, y.grad_fn}) == 1


def test_several_modules_as_one(torch):
    """An ensemble: parameters stacked, and vmap of a functional call."""
    weights = np.random.default_rng(0).standard_normal((3, 2, 4))

    def run(lib):
        models = [lib.nn.Sequential(lib.nn.Linear(4, 2), lib.nn.BatchNorm1d(2)).eval() for _ in range(3)]
        for m, w in zip(models, weights):
            m[0].weight.data.copy_(lib.tensor(w))
            m[0].bias.data.zero_()
        parameters, buffers = lib.func.stack_module_state(models)
        assert all(p.requires_grad and p.is_leaf for p in parameters.values())
        base = copy.deepcopy(models[0])
        x = lib.tensor(np.arange(8.0).reshape(2, 4), dtype=lib.float32)
        y = lib.func.vmap(lambda p, b, t: lib.func.functional_call(base, (p, b), (t,)), in_dims=(0, 0, None))(parameters, buffers, x)
        y.sum().backward()
        return {**{k: list(v.shape) for k, v in (parameters | buffers).items()}}, y.detach().cpu().numpy(), parameters["0.weight"].grad.cpu().numpy()

    ours, theirs = run(ampc), run(torch)
    assert ours[0] == theirs[0]
    for mine, other in zip(ours[1:], theirs[1:]):
        np.testing.assert_allclose(mine, other, rtol=1e-5)
    line = ampc.nn.Linear
    frozen = line(1, 1).requires_grad_(False)
    for wrong, kind, text in (([], RuntimeError, "at least one"), ([line(1, 1), line(1, 1).eval()], RuntimeError, "training mode"),
                              ([line(1, 1), ampc.nn.Identity()], RuntimeError, "one class"), ([line(1, 1), frozen], RuntimeError, "requires gradients in some")):
        with pytest.raises(kind, match=text):
            ampc.func.stack_module_state(wrong)


def test_a_function_made_linear(torch):
    def run(lib):
        f = lambda x, more: {"a": x.sin() * more["w"], "b": (x * x).sum()}  # noqa: E731
        given = lib.tensor([0.5, 2.0]), {"w": lib.tensor([3.0, -1.0])}
        value, along = lib.func.linearize(f, *given)
        moves = [along(lib.tensor([1.0, v]), {"w": lib.tensor([v, 0.0])}) for v in (0.0, 2.0)]
        return [found[k].tolist() for found in (value, *moves) for k in ("a", "b")]

    for mine, other in zip(run(ampc), run(torch)):
        np.testing.assert_allclose(mine, other, rtol=1e-6)
    value, along = ampc.func.linearize(ampc.sin, ampc.zeros(3))
    assert along(ampc.ones(3)).tolist() == [1, 1, 1] and value.tolist() == [0, 0, 0]
    for wrong in (ampc.ones(2), ampc.ones(3).double()):
        with pytest.raises(RuntimeError, match="tangents"):
            along(wrong)


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
def test_a_function_without_writes_in_place(torch, remove):
    """Writes reach the arguments in either library, and derivatives pass through."""
    def run(lib):
        x, y = lib.tensor([1.0, -2.0, 3.0]), lib.tensor([[1.0, 2.0], [3.0, 4.0]])
        f = lib.func.functionalize(lambda x, *, y: y.t().mul_(2).sum() * x.clone().mul_(x), remove=remove)
        slope = lib.func.grad(lambda x: lib.func.functionalize(lambda z: z.sin().add_(z).sum(), remove=remove)(x))(x)
        return [found.tolist() for found in (f(x, y=y), x, y, slope)]

    for mine, other in zip(run(ampc), run(torch)):
        np.testing.assert_allclose(mine, other, rtol=1e-6)
    with pytest.raises(RuntimeError, match="remove"):
        ampc.func.functionalize(ampc.sin, remove="views")


def test_gradients_for_several_weights(torch):
    """With is_grads_batched: the rows of a Jacobian, as torch stacks them."""
    def found(lib, **options):
        x, w = lib.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True), lib.tensor([0.5, 2.0], requires_grad=True)
        y, z = (x * w).sin().sum(0), (x * x).sum(1)
        unit = lib.eye(2)
        got = lib.autograd.grad((y, z), (x, w), (unit, 2 * unit), is_grads_batched=True, **options)
        alone = lib.autograd.grad(z.sum(), (x, w), retain_graph=True, allow_unused=True) if options.get("retain_graph") else ()
        unused = lib.autograd.grad(lib.ones(2, requires_grad=True) * 1, (w,), unit, is_grads_batched=True, allow_unused=True)
        return [g if g is None else np.array(g.tolist()) for g in (*got, *alone, *unused)], got[0].requires_grad

    for options in ({}, {"retain_graph": True}, {"create_graph": True}):
        (ours, records), (theirs, recorded) = found(ampc, **options), found(torch, **options)
        assert records == recorded and [g is None for g in ours] == [g is None for g in theirs]
        for mine, theirs_ in zip(ours, theirs):
            if mine is not None:
                np.testing.assert_allclose(mine, theirs_, rtol=1e-6)
    y = ampc.ones(2, requires_grad=True) * 2
    for wrong in (None, ampc.tensor(1.0), ampc.ones(0, 2)):
        with pytest.raises(ValueError, match="first dimension"):
            ampc.autograd.grad(y, y, wrong, is_grads_batched=True)


KEPT = {"x ** 3": ["self"], "x.exp()": ["result"], "x.sigmoid()": ["result"], "x.tanh()": ["result"], "x * w": ["self", "other"],
        "x / w": ["self", "other"], "x.log()": ["self"], "lib.softmax(x, 0)": ["result"], "x.sin()": ["self"], "x.atan2(w)": ["self", "other"]}


@pytest.mark.parametrize("made", KEPT)
def test_what_a_node_keeps_can_be_looked_at(torch, made):
    def look(lib):
        x, w = (lib.tensor(v, requires_grad=True) for v in ([0.5, 2.0], [3.0, 0.25]))
        y = eval(made, {"lib": lib, "x": x, "w": w})
        found = [getattr(y.grad_fn, f"_saved_{name}") for name in KEPT[made]]
        assert [t is x or t is w or t.grad_fn == y.grad_fn for t in found] == [True] * len(found) or lib is torch
        y.sum().backward()
        with pytest.raises(RuntimeError):  # freed
            getattr(y.grad_fn, f"_saved_{KEPT[made][0]}")
        with pytest.raises(AttributeError):
            y.grad_fn._saved_nothing
        return [t.tolist() for t in found]

    for mine, other in zip(look(ampc), look(torch)):
        np.testing.assert_allclose(mine, other, rtol=1e-6)


def test_what_a_function_leaves_can_be_looked_at(torch):
    """Through the node of its result."""
    def look(lib):
        class Scale(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x, factor):
                ctx.save_for_backward(x)
                ctx.factor = factor
                return x * factor

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.factor, None

        y = Scale.apply(lib.ones(2, requires_grad=True), 3.0)
        node = y.grad_fn
        assert not hasattr(node, "other") and not hasattr((y * 2).grad_fn, "factor")
        return node.factor, node.needs_input_grad, [t.tolist() for t in node.saved_tensors]

    assert look(ampc) == look(torch)


def test_cotangents_have_the_structure_of_the_result(torch):
    """One that is missing would leave out a part of the gradient."""
    one = [1.0, 1.0]
    for given in ("lib.tensor(one)", "{'a': lib.tensor(one)}", "[lib.tensor(one)] * 2", "{'a': lib.tensor(one), 'b': lib.tensor(1.0)}"):
        for lib in (ampc, torch):
            back = lib.func.vjp(lambda t: {"a": t, "b": t * 2}, lib.tensor(one))[1]
            assert back({"a": lib.tensor(one), "b": lib.tensor(one)})[0].tolist() == [3, 3]
            with pytest.raises(RuntimeError):
                back(eval(given, {"lib": lib, "one": one}))
    with pytest.raises(TypeError, match="Tensors"):
        ampc.func.vjp(ampc.sin, ampc.ones(2))[1](1.0)


DERIVATIVES = {
    "of several numbers": "F.hessian(lambda t: (t.sin() * m[0]).cumsum(0))(v)",
    "of one number": "F.hessian(lambda t: (t * t * t).sum())(v)",
    "by two arguments": "F.hessian(lambda a, b: (a * a * b).sum(), argnums=(0, 1))(v, m[0])",
    "for each row": "F.vmap(F.hessian(lambda t: t.cumprod(0)))(m)",
    "by a structure": "F.jacrev(lambda p, t: (m @ p['w'] + p['b']) * t.sum())({'w': v, 'b': m[:, 0]}, v)",
    "of a structure": "F.jacrev(lambda t: {'a': t.sin(), 'b': [t.sum(), t * 2]})(v)",
    "with more": "F.jacrev(lambda t: (t.sin(), {'more': t.sum()}), has_aux=True)(v)",
    "forward, with more": "F.jacfwd(lambda t, by: (t.exp() * by, t), has_aux=True)(v, m[0])",
    "by two, one a structure": "F.jacrev(lambda p, t: p[0] * t, argnums=(0, 1))([v], v)",
    "along": "F.jvp(lambda p, t: {'y': p['w'] * t}, ({'w': v}, v), ({'w': m[0]}, m[1]))",
    "along, with more": "F.jvp(lambda t: (t.sin(), t * 2), (v,), (m[0],), has_aux=True)",
    "kernel": "[lib.einsum('nf,mf->nm', a, b) for a, b in [(F.vmap(F.jacrev(lambda p, x: (p['w'] * x).sum().tanh()), (None, 0))({'w': v}, m)['w'],) * 2]]",
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_of_structures(torch, name):
    def found(lib):
        given = {"lib": lib, "F": lib.func, "v": lib.tensor([0.5, 2.0, -1.0], dtype=lib.float64),
                 "m": lib.tensor([[1.0, 0.25, 3.0], [0.5, -2.0, 1.5]], dtype=lib.float64)}
        leaves, spec = lib.utils._pytree.tree_flatten(eval(DERIVATIVES[name], given))
        return [leaf.tolist() for leaf in leaves], str(spec), [list(leaf.shape) for leaf in leaves], [leaf.requires_grad for leaf in leaves]

    ours, theirs = found(ampc), found(torch)
    assert ours[1:] == theirs[1:]
    for mine, other in zip(ours[0], theirs[0]):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-12)


def test_what_comes_with_a_result_is_asked_for():
    for derivative in (func.jacrev(ampc.sin, has_aux=True), lambda t: func.jvp(ampc.sin, (t,), (t,), has_aux=True)):
        with pytest.raises(RuntimeError, match="two things"):
            derivative(ampc.ones(2))


def test_argnums_from_the_end():
    x, y = ampc.tensor([1.0, 2.0]), ampc.tensor([3.0, 4.0])
    by_y, by_x = ampc.func.grad(lambda a, b: (a * a * b).sum(), argnums=(-1, 0))(x, y)
    assert by_y.tolist() == [1.0, 4.0] and by_x.tolist() == [6.0, 16.0]


ARGUMENTS = {
    "one is counted from the end": "F.grad(lambda a, b: (a * b).sum(), argnums=-1)(x, x + 1)",
    "none has the number": "F.grad(lambda a, b: (a * b).sum(), argnums=2)(x, x)",
    "one is named twice": "F.grad(lambda a, b: (a * b).sum(), argnums=(0, -2))(x, x)",
    "a list": "F.jacrev(lambda a, b: a * b, argnums=[0, 1])(x, x)",
    "no number": "F.jacfwd(lambda a, b: a * b, argnums=0.5)(x, x)",
    "none is named": "F.grad(lambda a, b: (a * b).sum(), argnums=())(x, x)",
    "one is no tensor": "F.grad(lambda a: a * 2)(3.0)",
    "a value with a dimension": "F.grad(lambda a: a.sum(0, keepdim=True))(x[0])",
    "a list of value and more": "F.grad(lambda a: [a.sum(), a], has_aux=True)(x)",
    "three for a value and more": "F.grad_and_value(lambda a: (a.sum(), 1, 2), has_aux=True)(x)",
    "vjp, nothing comes with it": "F.vjp(lambda a: a, x, has_aux=True)",
    "vjp of nothing": "F.vjp(lambda a: None, x)",
    "vjp of no tensor": "F.vjp(lambda a: (a, 1.0), x)",
    "jacrev of an empty tuple": "F.jacrev(lambda a: ())(x)",
    "jacrev of a number": "F.jacrev(lambda a: 1.0)(x)",
    "jacrev in chunks of none": "F.jacrev(lambda a: a, chunk_size=0)(x)",
    "jvp, strict, of a constant": "F.jvp(lambda a: (a, x), (x,), (x,), strict=True)",
    "vjp, strict, of a constant": "lib.autograd.functional.vjp(lambda a: (a, x), x, (x, x), strict=True)",
    "names": "(F.grad(lib.sin).__name__, F.vmap(lib.sin).__name__, F.jacrev(lib.sin).__name__)",
    "vmap of no rows": "F.vmap(lambda a: a.sum())(x[:0])",
    "vmap of no columns": "F.vmap(lambda a: (a * 2, a > 1), 1, (1, 0))(x[:, :0] > 0)",
    "vmap of a number": "F.vmap(lambda a, b: a * b)(x, 3.0)",
    "vmap of None": "F.vmap(lambda a, b: a)(x, None)",
    "vmap beside a number": "F.vmap(lambda a, b: a * b, (0, None))(x, 3.0)",
    "vmap gives a number": "F.vmap(lambda a: 3.0)(x)",
    "vmap gives a tensor and None": "F.vmap(lambda a: (a, None))(x)",
    "vmap gives the same": "F.vmap(lambda a: x[0] + 1, out_dims=None)(x)",
    "vmap gives what is not the same": "F.vmap(lambda a: a, out_dims=None)(x)",
    "vmap past the dimensions": "F.vmap(lambda a: a, 2)(x)",
    "vmap of a tensor without": "F.vmap(lambda a: a)(x[0, 0])",
    "vmap with a list of dimensions": "F.vmap(lambda a, b: a, [0, 0])(x, x)",
    "vmap with a dimension in a tuple": "F.vmap(lambda a: a * 2, out_dims=(1,))(x)",
    "vmap in chunks of none": "F.vmap(lambda a: a, chunk_size=0)(x)",
    "vmap draws": "F.vmap(lambda a: a + lib.rand(3))(x)",
    "vmap drops": "F.vmap(lambda a: lib.nn.functional.dropout(a))(x)",
    "vmap writes into what is shared": "F.vmap(lambda a, b: a.add_(b), (None, 0))(x[0].clone(), x)",
    "vmap writes into its own": "F.vmap(lambda a, b: a.add_(b), (0, None))(x.clone(), x[0])",
    "vmap of a list by a tuple": "F.vmap(lambda a: a[0] + a[1], in_dims=((0, 0),))([x, x])",
    "vmap of a tuple by a list": "F.vmap(lambda a: a[0] + a[1], in_dims=([0, 0],))((x, x))",
    "vmap of a list by a list": "F.vmap(lambda a: a[0] + a[1], in_dims=([0, 1],))([x, x.t()])",
    "vmap gives a tuple by a list": "F.vmap(lambda a: (a, a + 1), out_dims=[0, 0])(x)",
    "vmap gives a list by a tuple": "F.vmap(lambda a: [a, a + 1], out_dims=(0, 0))(x)",
    "vmap gives words": "F.vmap(lambda a: (a, 'words', 3, None), out_dims=(1, None, None, None))(x)",
    "vmap gives words alone": "F.vmap(lambda a: 'words', out_dims=None)(x)",
    "jacfwd draws": "F.jacfwd(lambda a: a + lib.rand(3))(x)",
    "jacfwd draws the same": "F.jacfwd(lambda a: a + lib.rand(3), randomness='same')(x)",
    "jacfwd draws at will": "F.jacfwd(lambda a: a, randomness='at will')(x)",
    "jvp of one": "F.jvp(lib.sin, x, x)",
    "jvp of one along one": "F.jvp(lib.sin, (x,), x)",
    "jvp of a list": "F.jvp(lib.sin, [x], [x])",
    "jvp of a number": "F.jvp(lib.sin, (1.0,), (x,))",
    "jvp along a number": "F.jvp(lib.sin, (x,), (1.0,))",
    "jvp of nothing": "F.jvp(lib.sin, (), ())",
    "jvp of an empty tuple": "F.jvp(lib.sin, ((),), ((),))",
    **{f"{what}, a {more} comes with it": call % more for more in ("1", "'words'", "None", "[a, 1]", "{'k': a}", "()") for what, call in {
        "grad": "F.grad(lambda a: (a.sum(), %s), has_aux=True)(x)", "vjp": "F.vjp(lambda a: (a.sum(), %s), x, has_aux=True)[::2]",
        "jacrev": "F.jacrev(lambda a: (a.sum(), %s), has_aux=True)(x)", "jacfwd": "F.jacfwd(lambda a: (a.sum(), %s), has_aux=True)(x)",
        "jvp": "F.jvp(lambda a: (a.sum(), %s), (x,), (x,), has_aux=True)"}.items()},
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_that_transforms_take(torch, name):
    """Results and refusals are torch's, by value, shape, dtype and kind of error."""
    def found(lib):
        given = {"lib": lib, "F": lib.func, "x": lib.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], dtype=lib.float64)}
        try:
            leaves, spec = lib.utils._pytree.tree_flatten(eval(ARGUMENTS[name], given))
        except (RuntimeError, ValueError) as error:
            return type(error).__name__
        return [(t.tolist(), list(t.shape), str(t.dtype).rpartition(".")[2]) if isinstance(t, lib.Tensor) else t for t in leaves], str(spec)

    assert found(ampc) == found(torch)


def test_a_function_may_name_what_it_keeps_for_jvp(torch):
    def found(lib):
        class Double(lib.autograd.Function):
            @staticmethod
            def forward(x):
                return x * 2

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_forward(inputs[0], None)
                ctx.save_for_backward(inputs[0])
                kept.append([t is inputs[0] for t in ctx.saved_for_forward])

            @staticmethod
            def backward(ctx, g):
                return g * 2 + ctx.saved_tensors[0]

        kept = []
        x = lib.tensor([1.0, 2.0], requires_grad=True)
        Double.apply(x).sum().backward()
        return kept, x.grad.tolist()

    assert found(ampc) == found(torch) == ([[True, False]], [3, 4])


def test_vmap_with_a_generator_of_its_own():
    """With 'same' all calls draw the same, and the stream goes on after one of them; by default none may draw."""
    given, beside = (ampc.Generator().manual_seed(3) for _ in range(2))
    drawn = func.vmap(lambda x: x + ampc.rand(2, generator=given), randomness="same")(ampc.zeros(3, 2))
    assert drawn.tolist() == [ampc.rand(2, generator=beside).tolist()] * 3
    assert ampc.equal(ampc.rand(4, generator=given), ampc.rand(4, generator=beside))
    with pytest.raises(RuntimeError, match="drew random numbers"):
        func.vmap(lambda x: x.clone().normal_(generator=given))(ampc.zeros(3, 2))
    each = func.vmap(lambda x: x + ampc.rand(2, generator=given), randomness="different")(ampc.zeros(3, 2))
    assert len({tuple(row) for row in each.tolist()}) == 3


@pytest.mark.parametrize("change", ["a", "a.neg_()", "a.add_(b)"])
@pytest.mark.parametrize(("dims", "out"), [(0, 0), (1, 1), (-1, 1), (0, 1), (1, 0)])
def test_an_argument_that_vmap_gives_back_is_the_result(torch, change, dims, out):
    seen = []
    for lib in (ampc, torch):
        x = lib.arange(6.0).reshape(2, 3)
        y = lib.func.vmap(lambda a, b: eval(change, {"a": a, "b": b}), (dims, None), out)(x, lib.tensor(2.0))
        given = y is x, y.data_ptr() == x.data_ptr(), y.stride(), y.tolist()
        seen.append((given, x.tolist()))
    assert seen[0] == seen[1]


def test_a_gradient_flows_through_an_argument_that_vmap_gives_back():
    leaf = ampc.arange(6.0).reshape(2, 3).requires_grad_()
    y = ampc.func.vmap(lambda a: a.mul_(a.detach().clone()), 1, 1)(leaf * 1)
    y.sum().backward()
    assert y.tolist() == [[0, 1, 4], [9, 16, 25]] and leaf.grad.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_gradients_of_vjp_can_be_differentiated_by_primals_met_without_recording(torch):
    for lib in (ampc, torch):
        x = lib.tensor(3.0, requires_grad=True)
        with lib.no_grad():
            y, back = lib.func.vjp(lambda a: a**3, x)
        slope, = back(lib.tensor(1.0))
        assert not y.requires_grad and slope.item() == 27 and lib.autograd.grad(slope, x)[0].item() == 18
def test_functional_call_hands_back_the_buffers_that_a_module_sets(torch):
    def forward(module, x):
        module.seen = module.seen + x.sum()
        return x * 2

    for lib in (torch, ampc):
        module = type("Counter", (lib.nn.Module,), {"forward": forward})()
        module.register_buffer("seen", lib.zeros(()))
        state, parts = {"seen": lib.ones(())}, [{"seen": lib.ones(())}]
        lib.func.functional_call(module, state, lib.ones(2))
        lib.func.functional_call(module, parts, lib.ones(2))
        assert state["seen"] == 3 and parts[0]["seen"] == 1 and module.seen == 0
        with lib.nn.utils.stateless._reparametrize_module(module, state):
            module(lib.ones(2))
            assert module.seen == 5
        assert state["seen"] == 5 and module.seen == 0
class _Sum:
    """The sum of an attribute, a parameter and a buffer that counts, in the library ``lib``."""

    def __new__(cls, lib):
        class Module(lib.nn.Module):
            def __init__(self):
                super().__init__()
                self.plain, self.word, self.first = lib.zeros(1), "x", lib.nn.Linear(1, 1)
                self.second = self.first
                self.count = lib.nn.Buffer(lib.zeros(1))

            def forward(self, x):
                self.count = self.count + 1
                return self.first(x) + self.second(x) + self.plain + self.count + getattr(self, "extra", 0)

        return Module()


CALLS = {
    "a plain attribute": lambda m: {"plain": m.ones(1)}, "a name that is new": lambda m: {"extra": m.ones(1)}, "a parameter that is new": lambda m: {"extra": m.nn.Parameter(m.ones(1))},
    "what is no tensor": lambda m: {"word": m.ones(1)}, "something else": lambda m: {"plain": 3}, "no bias": lambda m: {"first.bias": None}, "no such module": lambda m: {"third.weight": m.ones(1)},
    "tied": lambda m: {"first.weight": m.ones(1, 1), "first.bias": m.ones(1)}, "tied, in both names": lambda m: (lambda t: {"first.bias": t, "second.bias": t, "second.weight": m.ones(1, 1)})(m.ones(1)),
    "tied, of two values": lambda m: {"first.bias": m.ones(1), "second.bias": m.ones(1)}, "a buffer that the module sets": lambda m: {"count": m.ones(1)},
    "two dicts": lambda m: ({"plain": m.ones(1)}, {"count": m.ones(1)}), "a name in two dicts": lambda m: ({"plain": m.ones(1)}, {"plain": m.ones(1)}), "no dict": lambda m: 3,
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_what_functional_call_replaces(torch, name, strict):
    """Any tensor of the module, for this call alone; what the module sets is written into the dict."""
    outcomes = []
    for lib in (ampc, torch):
        module, values = _Sum(lib), CALLS[name](lib)
        with lib.no_grad():
            module.first.weight.fill_(2), module.first.bias.fill_(3)
        before = dict(module.named_parameters()), dict(module.named_buffers()), module.plain
        try:
            outcome = lib.func.functional_call(module, values, (lib.ones(1),), strict=strict).item()
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            outcome = type(error)
        written = values["count"].item() if isinstance(values, dict) and "count" in values else None
        outcomes.append((outcome, written, module.count.item(), hasattr(module, "extra")))
        after = dict(module.named_parameters()), dict(module.named_buffers()), module.plain
        same = list(after[0]) == list(before[0]) and all(after[0][n] is before[0][n] for n in after[0]) and after[2] is before[2]
        assert same or lib is torch  # torch leaves other tensors in a module that has two names
    assert outcomes[0] == outcomes[1]


def test_functional_call_of_a_module_within_itself():
    module = ampc.nn.Sequential(ampc.nn.Linear(1, 1))
    module[0].above = module
    y = ampc.nn.utils.stateless.call_with(module, {"0.above.0.weight": ampc.ones(1, 1), "0.bias": ampc.zeros(1)}, ampc.ones(1), None, False, False)
    assert y.item() == 1
