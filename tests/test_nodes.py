"""Nodes of the graph as torch shows them: their classes and names, what they keep, what hangs on them."""

import gc
import warnings
import weakref

import pytest

import ampc


def test_what_made_a_tensor_has_a_class_of_its_own(torch):
    """What draws graphs prints the class's name; a printed loss says what made it."""
    for made in ("x * 2", "x ** 2", "x.square()", "x.exp()", "x.clone()", "x @ x", "lib.log_softmax(x, 0)", "x.mean()", "lib.cat([x, x])", "lib.linalg.qr(x)[1]"):
        ours, theirs = (eval(made, {"lib": lib, "x": lib.eye(2, requires_grad=True)}) for lib in (ampc, torch))
        name = type(theirs.grad_fn).__name__
        node = ours.grad_fn
        assert type(node).__name__ == node.name() == name and f"grad_fn=<{name}>" in repr(ours) and repr(node).startswith(f"<ampc.autograd.{name} object at")
        assert type(node) is type(ours.grad_fn) and isinstance(node, ampc.autograd.graph.Node) and node == ours.grad_fn
    leaf = (ampc.ones(1, requires_grad=True) * 1).grad_fn.next_functions[0][0]
    assert type(leaf).__name__ == leaf.name() == "AccumulateGrad"
    with pytest.raises(TypeError, match="cannot create"):
        type(leaf)()


NODES = {
    "after": "y.grad_fn.register_hook(lambda gi, go: note([g if g is None else g.tolist() for g in gi], [g.tolist() for g in go])); y.sum().backward()",
    "replaced": "h = y.grad_fn.register_hook(lambda gi, go: (gi[0] * 10, gi[1])); y.sum().backward(retain_graph=True); h.remove(); note(x.grad.tolist()); y.sum().backward()",
    "left out": "y.grad_fn.register_hook(lambda gi, go: (None, None)); y.sum().backward()",
    "no tuple": "y.grad_fn.register_hook(lambda gi, go: gi[0] * 10); y.sum().backward()",
    "too few": "y.grad_fn.register_hook(lambda gi, go: (gi[0],)); y.sum().backward()",
    "raises": "y.grad_fn.register_hook(lambda gi, go: 1 / 0); y.sum().backward()",
    "before": "y.grad_fn.register_prehook(lambda go: note([g.tolist() for g in go])); y.sum().backward()",
    "before, replaced": "y.grad_fn.register_prehook(lambda go: (go[0] * 10,)); y.sum().backward()",
    "before, too many": "y.grad_fn.register_prehook(lambda go: (1, 2)); y.sum().backward()",
    "several results": "a, b = x.unbind(); a.grad_fn.register_prehook(lambda go: note([g if g is None else g.item() for g in go])); (a * 3).backward()",
    "of a leaf": "n = y.grad_fn.next_functions[0][0]; n.register_prehook(lambda go: (go[0] * 2,)); n.register_hook(lambda gi, go: note(gi, go[0].tolist())); y.sum().backward()",
    "of a leaf that all is for": "n = x.expand_as(x).grad_fn.next_functions[0][0]; n.register_hook(lambda *unused: note('ready')); y.sum().backward()",
    "of a product": "w = T.ones(2, 2, requires_grad=True); w.grad = T.ones(2, 2); z = w @ w; z.grad_fn.register_hook(lambda gi, go: tuple(g * 2 for g in gi)); z.sum().backward(); note(w.grad.tolist())",
    "a graph of gradients": "y = x * x; y.grad_fn.register_hook(lambda gi, go: tuple(g * x.detach() for g in gi)); g, = T.autograd.grad(y.sum(), x, create_graph=True); g.sum().backward()",
    "metadata": "n = y.grad_fn; n.metadata['a'] = 1; note(y.grad_fn.metadata, (x * 2).grad_fn.metadata); y.sum().backward()",
    "gradient of its own": "x.grad = x", "no bool": "x.requires_grad = 'a'", "an int": "x.requires_grad = 1",
    "no leaf": "note(y.grad); y.retain_grad(); note(y.grad); y.sum().backward(); note(y.grad.tolist(), (x * 2).detach().grad)",
}


@pytest.mark.parametrize("what", NODES)
def test_nodes_as_torchs(torch, what):
    def outcome(library):
        notes = []
        x = library.ones(2, requires_grad=True)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                exec(NODES[what], {"T": library, "x": x, "y": x * 2, "note": lambda *seen: notes.append(repr(seen))})
            except Exception as error:
                notes.append(type(error).__name__)
        return notes, None if x.grad is None or x.grad is x else x.grad.tolist(), [w.category for w in told]

    assert outcome(ampc) == outcome(torch)


def test_a_node_has_what_its_function_noted(torch):
    """ctx and grad_fn are one object in torch: libraries read there what forward chose, and change it before backward."""
    for library in (torch, ampc):
        class Scaled(library.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.factor = 3
                ctx.save_for_backward(x)
                return x * 3

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.factor

        x = library.ones(2, requires_grad=True)
        y = Scaled.apply(x)
        assert y.grad_fn.factor == 3 and y.grad_fn.needs_input_grad == (True,) and y.grad_fn.saved_tensors[0].tolist() == [1, 1]
        y.grad_fn.factor = 5
        y.grad_fn.other = "note"
        assert y.grad_fn.other == "note" and not hasattr(y.grad_fn, "nothing")
        y.sum().backward()
        assert x.grad.tolist() == [5, 5]
        del y.grad_fn.other
        assert not hasattr(y.grad_fn, "other")
        other = (x * 2).grad_fn
        with pytest.raises(AttributeError, match="nothing"):
            other.nothing = 1
        assert not hasattr(other, "nothing")


# -- what is collected ------------------------------------------------------------------------------------

class Held:
    """What hangs in a cycle."""


class Keeps(ampc.autograd.Function):
    @staticmethod
    def forward(ctx, x, held):
        ctx.held = held
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2, None


def hook_and_node(held):
    held.node = (ampc.ones(2, requires_grad=True) * 2).grad_fn
    held.node.register_hook(lambda given, got: held)


def prehook_and_node(held):
    held.node = (ampc.ones(2, requires_grad=True) * 2).grad_fn
    held.node.register_prehook(lambda got: held)


def node_and_its_metadata(held):
    held.node = (ampc.ones(2, requires_grad=True) * 2).grad_fn
    held.node.metadata["held"] = held


def context_and_node(held):
    held.node = Keeps.apply(ampc.ones(2, requires_grad=True), held).grad_fn


def context_and_result(held):
    held.result = Keeps.apply(ampc.ones(2, requires_grad=True), held)


@pytest.mark.parametrize("tie", [hook_and_node, prehook_and_node, node_and_its_metadata, context_and_node, context_and_result])
def test_cycles_through_a_node_are_collected(tie):
    held = Held()
    found = weakref.ref(held)
    tie(held)
    del held
    gc.collect()
    assert found() is None


def test_a_cycle_that_somebody_holds_stays():
    held = Held()
    x = ampc.ones(2, requires_grad=True)
    y = Keeps.apply(x, held)
    held.node, found = y.grad_fn, weakref.ref(held)
    del held
    gc.collect()
    y.sum().backward()
    assert found() is not None and found().node == y.grad_fn and x.grad.tolist() == [2, 2]


def test_the_classes_of_a_function_that_is_gone_are_collected():
    gone = []
    for _ in range(3):
        class Once(Keeps):
            pass
        node = Once.apply(ampc.ones(2, requires_grad=True), None).grad_fn
        assert type(node) is Once._backward_cls and type(node).__name__ == "OnceBackward" and type(node).__module__ == "ampc.autograd"
        gone += [weakref.ref(Once), weakref.ref(type(node))]
        del Once, node
    gc.collect()
    assert [found() for found in gone] == [None] * 6


def test_each_function_has_a_class_of_nodes():
    x = ampc.ones(2, requires_grad=True)
    one, another = (type("Same", (Keeps,), {}) for _ in range(2))
    nodes = [f.apply(x, None).grad_fn for f in (Keeps, one, one, another)]
    assert [type(n).__name__ for n in nodes] == ["KeepsBackward", "SameBackward", "SameBackward", "SameBackward"]
    assert type(nodes[1]) is type(nodes[2]) is not type(nodes[3])


# -- what nodes save --------------------------------------------------------------------------------------------------

SAVED_ONCE = {"mul": "x * c", "mul, turned": "c * x", "by a number": "x * 3", "div": "x / c", "div by a number": "x / 3", "mm": "x @ c", "bmm": "x[None] @ c[None]",
              "linear": "lib.nn.functional.linear(x, c)", "in place": "x.clone().mul_(c)",
              "both": "x * x.exp()"}


@pytest.mark.parametrize("made", SAVED_ONCE)
def test_what_backward_never_needs_is_not_saved(torch, made):
    """An operand that only the gradient of a constant would need, and numbers."""
    def count(lib):
        seen = []
        x, c = lib.ones(2, 2, requires_grad=True), lib.full((2, 2), 2.0)
        with lib.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.tolist()) or t, lambda t: t):
            y = eval(SAVED_ONCE[made], {"lib": lib, "x": x, "c": c})
        y.sum().backward()
        return seen, x.grad.tolist()

    ours, theirs = count(ampc), count(torch)
    assert sorted(map(str, ours[0])) == sorted(map(str, theirs[0])) and ours[1] == theirs[1]


def test_a_convolution_by_a_constant_keeps_the_constant():
    seen, x = [], ampc.ones(1, 2, 3, requires_grad=True)
    with ampc.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.shape) or t, lambda t: t):
        ampc.nn.functional.conv1d(x, ampc.ones(2, 2, 1)).sum().backward()
    assert seen == [(2, 2, 1)] and x.grad.tolist() == [[[2, 2, 2], [2, 2, 2]]]


def test_a_constant_factor_frees_the_other_operand():
    x = ampc.ones(3, requires_grad=True).clone()
    y, freed = x * 2, weakref.ref(x)
    before = y.grad_fn
    with pytest.raises(AttributeError, match="kept no tensor named 'self'"):
        before._saved_self
    del x
    assert freed() is None
    y.sum().backward()


def test_hooks_on_saved_tensors_see_leaves_of_functions(torch):
    def run(lib):
        class Product(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                return x * w

            @staticmethod
            def backward(ctx, g):
                x, w = ctx.saved_tensors
                return g * w, g * x

        seen, x, w = [], lib.tensor([3.0], requires_grad=True), lib.tensor([5.0], requires_grad=True)
        with lib.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.item()) or t * 2, lambda t: t):
            y = Product.apply(x, w)
        first, = lib.autograd.grad(y, x, create_graph=True)
        return seen, first.item(), lib.autograd.grad(first, w)[0].item()

    assert run(ampc) == run(torch)


def test_a_hook_that_writes_into_its_tensor_is_an_error(torch):
    for lib in (ampc, torch):
        x = lib.ones(2, requires_grad=True)
        with pytest.raises(RuntimeError, match="in place"), lib.autograd.graph.saved_tensors_hooks(lambda t: t.add_(1), lambda t: t):
            x.exp()


def test_inference_tensors_are_not_saved(torch):
    for lib in (ampc, torch):
        class Kept(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(w)
                return x.clone()

        x = lib.ones(2, requires_grad=True)
        with lib.inference_mode():
            c = lib.ones(2)
        assert (x + c).requires_grad and (x.detach() * c).tolist() == [1, 1]
        for f, args in ((lib.mul, (x, c)), (lib.Tensor.mul_, (x.clone(), c)), (Kept.apply, (x, c))):
            with pytest.raises(RuntimeError, match="(?i)inference"):
                f(*args)
        assert lib.hypot(x, c).requires_grad and lib.remainder(x, c).requires_grad  # their gradients do not need c


def test_a_gradient_edge_stands_for_a_tensor(torch):
    def run(lib):
        graph, x = lib.autograd.graph, lib.tensor([0.5, 2.0], requires_grad=True)
        parts = (x * 3).unbind()
        inner, found = parts[1].sin(), []
        edge, leaf, part = (graph.get_gradient_edge(t) for t in (inner, x, parts[1]))
        loss = inner.exp()
        found += lib.autograd.grad(loss, (edge, leaf, part), retain_graph=True)
        found += lib.autograd.grad(edge, x, retain_graph=True)
        lib.autograd.backward(loss, inputs=(leaf,))
        with pytest.raises(RuntimeError):
            graph.get_gradient_edge(lib.ones(1))
        with pytest.raises(RuntimeError):
            lib.autograd.grad(graph.get_gradient_edge(x * 1), x)  # of several elements
        return [t.tolist() for t in (*found, x.grad)], edge.output_nr, part.output_nr, type(edge.node).__name__, type(leaf.node).__name__

    ours, theirs = run(ampc), run(torch)
    assert ours[1:] == theirs[1:] and all(a == pytest.approx(b, rel=1e-6) for a, b in zip(ours[0], theirs[0]))
    node = (ampc.ones(1, requires_grad=True) * 1).grad_fn
    with pytest.raises(RuntimeError, match="has 1 results"):
        ampc.autograd.grad(ampc.autograd.graph.GradientEdge(node, 1), ampc.ones(1, requires_grad=True))


def test_saved_tensors_may_be_modified_in_a_region_for_it(torch):
    def run(lib):
        x = lib.tensor([2.0, 3.0], requires_grad=True)
        with lib.autograd.graph.allow_mutation_on_saved_tensors():
            a = x.clone()
            y = (a**2).sum()
            a.zero_()
            y.backward()
            with pytest.raises(RuntimeError), lib.autograd.graph.allow_mutation_on_saved_tensors():
                pass
        return x.grad.tolist()

    assert run(ampc) == run(torch) == [4, 6]


def test_writes_that_autograd_does_not_see_are_told(torch):
    for lib in (ampc, torch):
        x = lib.ones(2, requires_grad=True).clone()
        y = x.sin()
        lib.autograd.graph.increment_version([x])
        assert x._version == 1
        with pytest.raises(RuntimeError):
            y.sum().backward()


def test_grad_without_inputs_and_zeros_that_can_be_differentiated(torch):
    for lib in (ampc, torch):
        x, other = (lib.ones(1, requires_grad=True) for _ in range(2))
        with pytest.raises(RuntimeError):
            lib.autograd.grad(x * 2, [])
        for graph in (False, True):
            assert lib.autograd.grad((x * 2).sum(), other, create_graph=graph, materialize_grads=True)[0].requires_grad is graph


def test_callbacks_at_the_end_of_a_pass(torch):
    """Libraries queue them by ``Variable._execution_engine``."""
    def run(lib):
        order, x = [], lib.ones(2, requires_grad=True)
        y = x * 2
        y.register_hook(lambda g: lib.autograd.Variable._execution_engine.queue_callback(lambda: order.append(("end", x.grad is None))))
        x.register_hook(lambda g: order.append("leaf"))
        y.sum().backward()
        with pytest.raises(RuntimeError):
            lib.autograd.Variable._execution_engine.queue_callback(list)
        with lib.autograd.set_multithreading_enabled(False):
            inside = lib.autograd.is_multithreading_enabled()
        return order, inside, lib.autograd.is_multithreading_enabled()

    assert run(ampc) == run(torch)
