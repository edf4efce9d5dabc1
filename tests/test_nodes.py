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
