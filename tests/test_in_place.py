"""Writes in place, views and what backward makes of them: the same gradients as torch, and errors where torch has errors."""

import pytest

import ampc

torch = pytest.importorskip("torch")


def functions(T):
    """Functions of the library ``T``: one that doubles its input in place, others that return views."""

    class Double(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, *others):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return (g * 2,) + (g,) * (len(ctx.needs_input_grad) - 1)

    class Head(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x[:2]

        @staticmethod
        def backward(ctx, g):
            return T.cat([g * 3, g * 0])

    class HeadOfCopy(Head):
        @staticmethod
        def forward(ctx, x):
            return x.clone()[:2]

    class Halves(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x[:2], x[2:]

        @staticmethod
        def backward(ctx, g, h):
            return T.cat([g, h]) * 3

    class Through(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 3

    return Double, Head, HeadOfCopy, Halves, Through


class Case:
    """Tensors of the library ``T``: a leaf ``w``, what was made of it ``p``, and the functions above."""

    def __init__(self, T):
        self.T = T
        self.w = T.ones(4, requires_grad=True)
        self.p = self.w * 1
        self.Double, self.Head, self.HeadOfCopy, self.Halves, self.Through = functions(T)

    def unrecorded(self, x):
        with self.T.no_grad():
            return x[:2]

    def backward(self, x):
        (x * x).sum().backward()
        return self.w.grad


def written_view_of(c):
    c.Double.apply(c.p[:2])
    return c.backward(c.p)


def written_view_itself(c):
    return c.backward(c.Double.apply(c.p[:2]))


def written_view_is_returned(c):
    v = c.p[:2]
    d = c.Double.apply(v)
    return [d is v, d._base is c.p, c.p._version, d.requires_grad]


def written_base_seen_by_view(c):
    v = c.p[:2]
    c.Double.apply(c.p)
    return c.backward(v)


def written_view_then_used_again(c):
    v = c.p[:2]
    c.Double.apply(v)
    v.mul_(3)
    return c.backward(c.p)


def written_view_twice(c):
    c.Double.apply(c.p[:2])
    c.Double.apply(c.p[1:])
    return c.backward(c.p)


def written_leaf(c):
    return c.Double.apply(c.w)


def written_view_of_leaf(c):
    return c.Double.apply(c.w[:2])


def written_leaf_under_no_grad(c):
    with c.T.no_grad():
        d = c.Double.apply(c.w)
    return [d is c.w, d.requires_grad, c.w]


def written_plain_leaf(c):
    x = c.T.ones(4)
    d = c.Double.apply(x, c.w)
    return [d is x, x.requires_grad, x.is_leaf]


def written_part_of_a_split(c):
    return c.Double.apply(c.p.chunk(2)[0])


def written_unrecorded_view(c):
    return c.Double.apply(c.unrecorded(c.p))


def written_unrecorded_view_of_a_plain_leaf(c):
    x = c.T.ones(4)  # nobody else having it, ampc takes its view for a tensor of its own
    return c.Double.apply(c.unrecorded(x), c.w[:2])


def written_without_gradients(c):
    x = c.T.ones(4)
    d = c.Double.apply(x)
    return [d is x, x._version, d.requires_grad]


def written_and_not_returned(c):
    class Lost(c.T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.clone()

    return Lost.apply(c.p)


def written_is_no_tensor(c):
    class Wrong(c.T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(3)
            return x.clone()

    return Wrong.apply(c.p)


def without_gradient_is_no_tensor(c):
    class Wrong(c.T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_non_differentiable(3)
            return x.clone()

    return Wrong.apply(c.p)


def written_without_a_gradient(c):
    class Written(c.T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            ctx.mark_non_differentiable(x)
            return x

    d = Written.apply(c.p)
    return [d.requires_grad, c.p.requires_grad]


def returned_view_is_used(c):
    return c.backward(c.Head.apply(c.p))


def returned_view_is_written(c):
    return c.Head.apply(c.p).mul_(2)


def returned_view_of_a_leaf_is_written(c):
    return c.Head.apply(c.w).mul_(2)


def returned_view_of_a_copy_is_written(c):
    return c.HeadOfCopy.apply(c.p).mul_(2)


def returned_views_are_written(c):
    return c.Halves.apply(c.p)[1].mul_(2)


def input_handed_through_is_written(c):
    return c.Through.apply(c.p).mul_(2)


def input_handed_through(c):
    y = c.Through.apply(c.p)
    return [y is c.p, y._base is c.p, c.backward(y)]


def input_handed_through_under_no_grad(c):
    with c.T.no_grad():
        y = c.Through.apply(c.w)
    return [y is c.w, y.requires_grad]


def view_of_a_returned_view_is_written(c):
    return c.Head.apply(c.p)[:1].mul_(2)


def returned_view_of_what_needs_no_gradient_is_written(c):
    return c.Head.apply(c.T.ones(4)).mul_(2)


def returned_view_is_detached_and_written(c):
    return c.Head.apply(c.p).detach().mul_(2)


def returned_view_outlives_its_base(c):
    v = c.Head.apply(c.p)
    c.p.mul_(2)
    return c.backward(v)


def base_of_a_returned_view_is_written(c):
    c.Head.apply(c.p)
    c.p.mul_(2)
    return c.backward(c.p)


def returned_view_is_written_under_no_grad(c):
    v = c.Head.apply(c.p)
    with c.T.no_grad():
        v.mul_(2)
    return c.backward(v)


def unrecorded_view_is_written(c):
    return c.unrecorded(c.p).mul_(2)


def unrecorded_view_of_a_leaf_is_written(c):
    return c.unrecorded(c.w).mul_(2)


def unrecorded_view_of_what_needs_no_gradient_is_written(c):
    return c.unrecorded(c.T.ones(4)).mul_(2)


def unrecorded_view_takes_what_needs_gradients(c):
    x = c.T.ones(4)
    return c.unrecorded(x).mul_(c.w[:2])


def unrecorded_view_is_written_under_no_grad(c):
    v = c.unrecorded(c.p)
    with c.T.no_grad():
        v.mul_(2)
    return [c.p, v.requires_grad]


def unrecorded_view_is_used_after_a_write(c):
    v = c.unrecorded(c.p)
    with c.T.no_grad():
        c.p.mul_(2)
    return v * 2


def unrecorded_view_of_a_leaf_is_used_after_a_write(c):
    v = c.unrecorded(c.w)
    with c.T.no_grad():
        c.w.mul_(2)
    return v * 2


def view_of_an_unrecorded_view_is_written(c):
    v = c.unrecorded(c.p)
    return v[:1].mul_(2)


def unrecorded_view_is_copied_to(c):
    return c.unrecorded(c.p).copy_(c.T.zeros(2))


def unrecorded_view_is_zeroed(c):
    return c.unrecorded(c.p).zero_()


def unrecorded_view_is_assigned_to(c):
    v = c.unrecorded(c.p)
    v[0] = 3


def unrecorded_view_is_detached_and_written(c):
    c.unrecorded(c.p).detach().mul_(2)
    return c.p


def unrecorded_parts_are_written(c):
    with c.T.no_grad():
        a, _ = c.p.chunk(2)
    return a.mul_(2)


def view_under_inference_mode_is_written(c):
    with c.T.inference_mode():
        v = c.p[:2]
    return v.mul_(2)


def view_under_inference_mode_needs_no_gradient(c):
    x = c.T.ones(4)
    with c.T.inference_mode():
        v = x[:2]
    return v.mul_(2)


def base_of_an_unrecorded_view_takes_what_needs_gradients(c):
    x = c.T.ones(4)
    v = c.unrecorded(x)
    x.mul_(c.w)
    return c.backward(v)


def kept_gradient_of_the_value_after(c):
    c.p.retain_grad()
    c.p.mul_(3)
    (c.p * 2).sum().backward()
    return [c.p.grad, c.w.grad, c.p.retains_grad]


def kept_gradient_asked_for_again_and_again(c):
    for k in range(3):
        c.p.retain_grad()
        c.p.mul_(k + 2)
    return c.backward(c.p), c.p.grad


def kept_gradient_of_a_base(c):
    c.p.retain_grad()
    c.p[:2].mul_(3)
    return c.backward(c.p), c.p.grad


def kept_gradient_of_a_written_view(c):
    v = c.p[:2]
    v.retain_grad()
    v.mul_(3)
    return c.backward(c.p), v.grad


def kept_gradient_of_an_outdated_view(c):
    v = c.p[:2]
    v.retain_grad()
    c.p.mul_(3)
    return c.backward(v), v.grad


def kept_gradient_behind_a_function(c):
    c.p.retain_grad()
    z = c.Double.apply(c.p)
    return c.backward(z * 3), c.p.grad


def kept_gradient_comes_after_hooks(c):
    c.p.retain_grad()
    c.p.register_hook(lambda g: g * 10)
    return c.backward(c.p), c.p.grad


def kept_gradient_of_a_part(c):
    a, b = c.p.chunk(2)
    b.retain_grad()
    return c.backward(c.T.cat([b, a, b])), a.grad, b.grad


def kept_gradients_add_up(c):
    c.p.retain_grad()
    for _ in range(2):
        (c.p * c.p).sum().backward(retain_graph=True)
    return [c.p.grad]


def kept_gradient_can_be_differentiated(c):
    c.p.retain_grad()
    (c.p**3).sum().backward(create_graph=True)
    g, = c.T.autograd.grad(c.p.grad.sum(), c.w)
    return [c.p.grad, g]


def kept_gradient_of_a_leaf(c):
    c.w.retain_grad()
    return c.backward(c.p), c.w.retains_grad


def kept_gradient_after_detach(c):
    c.p.retain_grad()
    c.p.detach_()
    return [c.p.retains_grad, c.p.requires_grad, c.p.is_leaf]


def kept_gradient_of_what_needs_none(c):
    c.T.ones(2).retain_grad()


def hooks_stay_on_the_value_before(c):
    seen = []
    c.p.register_hook(lambda g: seen.append(g.tolist()))
    c.p.mul_(3)
    return c.backward(c.p), seen


def counted(c, x, factor=0.5):
    calls = []

    def hook(g):
        calls.append(1)
        return g * factor

    x.register_hook(hook)
    return calls


def grad_of_a_leaf_listed_twice(c):
    calls = counted(c, c.w)
    return c.T.autograd.grad(c.p.sum(), [c.w, c.w]), len(calls)


def grad_of_a_result_listed_twice(c):
    calls = counted(c, c.p)
    return c.T.autograd.grad((c.p * c.p).sum(), [c.p, c.p]), len(calls)


def grad_of_a_result_on_the_way_to_a_leaf(c):
    calls = counted(c, c.p)
    return c.T.autograd.grad((c.p * c.p).sum(), [c.p, c.w, c.p]), len(calls)


def grad_of_parts_on_the_way(c):
    a, b = c.p.chunk(2)
    calls = counted(c, a), counted(c, b, 0.25)
    return c.T.autograd.grad(a.sum() + 2 * b.sum(), [a, b, c.w]), len(calls[0]), len(calls[1])


def grad_of_the_root(c):
    y = c.p.sum()
    counted(c, y)
    return c.T.autograd.grad(y, [y, y])


def grad_of_a_leaf_that_is_the_root(c):
    counted(c, c.w)
    return c.T.autograd.grad(c.w, [c.w, c.w], c.T.ones(4))


def grad_keeps_on_the_way(c):
    c.p.retain_grad()
    g = c.T.autograd.grad((c.p * c.p).sum(), [c.w])
    return g, c.p.grad, c.w.grad


def grad_calls_nobody_after_accumulation(c):
    c.w.register_post_accumulate_grad_hook(lambda t: 1 / 0)
    return c.T.autograd.grad(c.p.sum(), [c.w]), c.w.grad


def backward_to_inputs_listed_twice(c):
    calls = counted(c, c.w)
    c.p.sum().backward(inputs=[c.w, c.w])
    return c.w.grad, len(calls)


def backward_to_inputs_tells_of_accumulation(c):
    seen = []
    c.w.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.tolist()))
    c.p.sum().backward(inputs=[c.w])
    return seen


def backward_to_a_result(c):
    counted(c, c.p)
    c.p.sum().backward(inputs=[c.p])
    return c.p.grad, c.w.grad, c.p.retains_grad


def backward_to_a_result_and_a_leaf(c):
    other = c.T.ones(4, requires_grad=True)
    c.p.retain_grad()
    (c.p * other).sum().backward(inputs=[c.p, c.w])
    return c.p.grad, c.w.grad, other.grad


CASES = [f for f in list(globals().values()) if getattr(f, "__module__", None) == __name__ and getattr(f, "__code__", None) is not None
         and f.__code__.co_varnames[:f.__code__.co_argcount] == ("c",)]


def plain(value):
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value.tolist() if hasattr(value, "tolist") else value


def outcome(case, T):
    try:
        return plain(case(Case(T)))
    except Exception as e:
        return type(e)


@pytest.mark.parametrize("case", CASES, ids=lambda f: f.__name__)
def test_as_torch(case):
    assert outcome(case, ampc) == outcome(case, torch)


@pytest.mark.parametrize("case, words", [
    (written_leaf, "a leaf that requires gradients"),
    (written_view_of_leaf, "a view of a leaf"),
    (written_and_not_returned, "mark_dirty was not returned"),
    (returned_view_is_written, "a view returned by an autograd Function"),
    (returned_view_outlives_its_base, "a view returned by an autograd Function"),
    (unrecorded_view_is_written, "a view made under no_grad"),
    (unrecorded_view_is_used_after_a_write, "a view made under no_grad"),
], ids=lambda x: x.__name__ if callable(x) else "")
def test_errors_say_what_happened(case, words):
    with pytest.raises(RuntimeError, match=words):
        case(Case(ampc))


def test_a_written_view_may_be_one_of_several_results():
    """Where torch refuses."""
    class Double(ampc.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x.clone(), x

        @staticmethod
        def backward(ctx, g, h):
            return g * 2 + h * 2

    w = ampc.ones(4, requires_grad=True)
    p = w * 1
    copy, _ = Double.apply(p[:2])
    (p.sum() + 10 * copy.sum()).backward()
    assert w.grad.tolist() == [22, 22, 1, 1]


def test_kept_gradients_do_not_outlive_their_tensors():
    """The tensor may go before its history, and the other way round."""
    w = ampc.ones(4, requires_grad=True)
    p = w * 1
    z = p * p
    p.retain_grad(), z.retain_grad()
    total = z.sum()
    del z
    total.backward()
    assert p.grad.tolist() == [2, 2, 2, 2]
    p.detach_()
    (p * w).sum().backward()
    assert p.grad.tolist() == [2, 2, 2, 2] and w.grad.tolist() == [3, 3, 3, 3]


def test_a_view_that_cannot_be_used_is_still_shown():
    w = ampc.ones(4, requires_grad=True, device="cpu")
    with ampc.no_grad():
        v = w[:2]
        v.add_(1)
    assert repr(v) == "tensor([2., 2.], grad_fn=<Invalid>)" and "Invalid" in v._repr_html_()
    assert v.detach().tolist() == v.tolist() == [2, 2]
