"""The order of dimensions in memory: elementwise results and copies keep that of their operands, as torch's do."""

import itertools

import numpy as np
import pytest
from where import DEVICE

import ampc

SHAPE = (2, 3, 4, 5)
UNARY = {
    "clone": lambda m, x: x.clone(), "exp": lambda m, x: x.exp(), "relu": lambda m, x: m.nn.functional.relu(x), "gelu": lambda m, x: m.nn.functional.gelu(x),
    "number": lambda m, x: 2 * x + 1, "less": lambda m, x: x < 3, "half": lambda m, x: x.half(), "where": lambda m, x: m.where(x > 3, x, 0.0),
    "integers": lambda m, x: x.to(m.int64) + 1, "square": lambda m, x: x.to(m.bfloat16).square(), "flip": lambda m, x: x.flip(0, 2),
    "clamp": lambda m, x: x.clamp(1, 7), "self": lambda m, x: x * x.sigmoid(), "zeros_like": lambda m, x: m.zeros_like(x),
    "full_like": lambda m, x: m.full_like(x, 3), "empty_like": lambda m, x: m.empty_like(x, dtype=m.int32).fill_(4), "ones_like": lambda m, x: m.ones_like(x),
    "channel": lambda m, x: x + m.ones(3, 1, 1), "rows": lambda m, x: m.ones(5) - x, "gap": lambda m, x: x[:, :, ::2] + 1, "expanded": lambda m, x: x[:1].expand(2, 3, 4, 5).clone()}


def made(m, order=(0, 1, 2, 3), shape=SHAPE):
    """Values whose dimensions lie in memory in that order, the last one innermost."""
    back = [order.index(d) for d in range(len(order))]
    x = m.tensor(np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 11)
    return x.permute(order).contiguous().permute(back)


def alike(got, want):
    """Values and strides; those along dimensions of size 1 say nothing."""
    assert [s for s, n in zip(got.stride(), got.shape) if n > 1] == [s for s, n in zip(want.stride(), want.shape) if n > 1]
    np.testing.assert_allclose(got.float().numpy(), want.float().numpy(), rtol=1e-6)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2), (1, 0, 2, 3)], ids=str)
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.cpu
def test_results_have_their_operands_order(torch, name, order):
    alike(UNARY[name](ampc, made(ampc, order)), UNARY[name](torch, made(torch, order)))


@pytest.mark.cpu
def test_the_first_operand_decides_between_two_orders(torch):
    for one, two in itertools.product(itertools.permutations(range(3)), repeat=2):
        for shape in ((2, 3, 4), (2, 1, 4)):
            got, want = (made(m, one, (2, 3, 4)) * made(m, two, shape) for m in (ampc, torch))
            alike(got, want)


def test_on_every_device_values_stay_where_they_belong():
    plain = made(ampc).to(DEVICE)
    last = plain.contiguous(memory_format=ampc.channels_last)
    strides = (60, 1, 15, 3)
    for call in (lambda x: x.clone(), lambda x: x * 2, lambda x: x.to(ampc.bfloat16), lambda x: x + ampc.ones(3, 1, 1, device=DEVICE), lambda x: x.flip(1), lambda x: x.half() * x.half()):
        got = call(last)
        assert got.stride() == strides and got.is_contiguous(memory_format=ampc.channels_last)
        assert ampc.equal(got, call(plain))
    turned = plain.transpose(0, 3)[:, 1:].to("cpu").to(DEVICE)
    assert ampc.equal(turned, plain.transpose(0, 3)[:, 1:].contiguous()) and last.to("cpu").stride() == strides
    assert ampc.equal(last.cpu().to(DEVICE), plain) and last.cpu().to(DEVICE).stride() == strides


def test_copies_take_the_format_that_is_asked_for():
    last = made(ampc).contiguous(memory_format=ampc.channels_last)
    assert last.clone(memory_format=ampc.contiguous_format).is_contiguous() and last.contiguous().is_contiguous()
    assert made(ampc).clone(memory_format=ampc.channels_last).stride() == last.stride()
    assert ampc.zeros_like(last, memory_format=ampc.contiguous_format).is_contiguous()
    assert ampc.equal(last.reshape(6, 20), made(ampc).reshape(6, 20)) and ampc.permute_copy(last, (0, 2, 3, 1)).is_contiguous()
    again = last.clone(memory_format=ampc.channels_last)
    again.zero_()
    assert last.sum() > 0 and ampc.rand_like(last).stride() == ampc.randint_like(last, 5).stride() == last.stride()
    assert ampc.empty_like(last)._base is None and ampc.empty(SHAPE, memory_format=ampc.channels_last)._base is None


@pytest.mark.parametrize("dtype", [ampc.float32, ampc.bfloat16])
def test_gradients_of_permuted_values(dtype):
    x, w = (made(ampc, order).to(DEVICE, dtype).requires_grad_() for order in ((0, 2, 3, 1), (0, 1, 2, 3)))
    y = made(ampc).to(DEVICE, dtype).requires_grad_()
    (x.relu() * w).square().sum().backward()
    (y.relu() * w.detach()).square().sum().backward()
    assert ampc.equal(x.grad, y.grad) and x.grad.is_contiguous(memory_format=ampc.channels_last)


LEAVES = {
    "rows": lambda m, w: w.t().exp(), "turned": lambda m, w: w.t().contiguous(), "linear": lambda m, w: m.nn.functional.linear(m.ones(5, 3), w.t()),
    "cast": lambda m, w: w.t().bfloat16() * 2, "both": lambda m, w: w.exp() + w.t().exp().t()}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=str)
@pytest.mark.parametrize("name", LEAVES)
@pytest.mark.cpu
def test_the_gradient_of_a_leaf_lies_as_the_leaf_does(torch, name, order):
    grads = []
    for m in (ampc, torch):
        w = (made(m, order, (3, 4)) / 11).requires_grad_()
        LEAVES[name](m, w).float().square().sum().backward()
        assert w.grad.stride() == w.stride()
        grads.append(w.grad)
    np.testing.assert_allclose(grads[0].numpy(), grads[1].numpy(), rtol=0.02 if name == "cast" else 1e-5)


@pytest.mark.cpu
def test_the_gradient_of_a_leaf_with_gaps_lies_row_by_row(torch):
    for m, graph in itertools.product((ampc, torch), (False, True)):
        w = made(m, (0, 1), (8, 3))[::2].detach().requires_grad_()
        w.t().sigmoid().square().sum().backward(create_graph=graph)
        assert w.grad.stride() == (3, 1)


ROWS = {
    "masked_fill": lambda m, x: x.masked_fill(x > 3, 1.0), "masked_fill_tensor": lambda m, x: x.masked_fill(x > 3, m.tensor(1.0)), "tril": lambda m, x: x.tril(),
    "triu": lambda m, x: x.triu(1), "one_hot": lambda m, x: m.nn.functional.one_hot(x.long()), "isin": lambda m, x: m.isin(x, m.tensor([1.0, 2.0])),
    "logsigmoid": lambda m, x: m.nn.functional.logsigmoid(x), "rot90": lambda m, x: x.rot90(0, (0, 1))}


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (3, 1, 0, 2)], ids=str)
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.cpu
def test_a_few_results_are_row_by_row_all_the_same(torch, name, order):
    got, want = (ROWS[name](m, made(m, order)) for m in (ampc, torch))
    alike(got, want)
    assert not want.is_contiguous() or got.view(-1).shape == want.view(-1).shape


@pytest.mark.parametrize("make", [ampc.optim.SGD, ampc.optim.AdamW], ids=lambda make: make.__name__)
def test_optimizers_step_parameters_of_any_order(make):
    plain, last = (made(ampc, order).to(DEVICE).requires_grad_() for order in ((0, 1, 2, 3), (0, 2, 3, 1)))
    for p in (plain, last):
        step = make([p], lr=0.1)
        for _ in range(2):
            step.zero_grad()
            (p.square().sum() + p.mean()).backward()
            step.step()
    assert last.stride() == (60, 1, 15, 3)
    np.testing.assert_allclose(last.detach().cpu().numpy(), plain.detach().cpu().numpy(), rtol=1e-5)


VIEWS = {"an index": lambda x: x[1], "the end": lambda x: x.narrow(-1, 1, x.shape[-1] - 1), "turned": lambda x: x.transpose(0, -1)[1], "every second": lambda x: x[::2],
         "a diagonal": lambda x: x.diagonal(), "two steps": lambda x: x[:, 1:].diagonal(0, -1, 0), "expanded in place": lambda x: x.unsqueeze(0)[:, 0]}
WRITES = {"mul_": lambda m, base, v: v.mul_(3), "copy_": lambda m, base, v: v.copy_(m.full(v.shape, 7.0)), "of the base": lambda m, base, v: base.mul_(5)}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("order", [(0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 3, 2)], ids=str)
def test_writes_into_views_of_what_keeps_an_order_are_recorded(order, view, write):
    torch, found = pytest.importorskip("torch"), []
    for m in (ampc, torch):
        leaf = made(m, order, (3, 3, 2, 3)).requires_grad_()
        base = leaf * 2
        part = VIEWS[view](base)
        WRITES[write](m, base, part)
        (base.square().sum() + (part**3).sum()).backward()
        found.append((base.tolist(), part.tolist(), leaf.grad.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("gaps", [(slice(None), slice(None), slice(0, 3)), (slice(None, None, 2), slice(1, 4)), (slice(None), slice(None), slice(1, None, 2)), (slice(None, 3), 0)], ids=str)
def test_writes_into_views_of_what_has_gaps_are_recorded(torch, gaps, view):
    def results(m):
        leaf = made(m, (1, 0, 2, 3), (5, 4, 6, 3)).requires_grad_()
        base = (leaf * 2)[gaps]  # the whole is nobody's but its
        part = VIEWS[view](base)
        part += leaf.mean()
        base[0, ..., 1].mul_(3)
        (base.square().sum() + (part**3).sum()).backward()
        return base, part, leaf.grad

    for got, want in zip(results(ampc), results(torch)):
        np.testing.assert_allclose(got.detach().cpu().numpy(), want.detach().numpy(), rtol=1e-4)


def test_a_view_between_the_elements_of_its_base_is_refused():
    base = (ampc.ones(2, 6, requires_grad=True) * 2)[:, ::2]
    between = base.as_strided((2, 2), (6, 3), 1)
    with pytest.raises(RuntimeError, match="make the base contiguous first"):
        between.mul_(2)


def test_a_view_across_rows_that_are_no_neighbours_is_refused():
    base = made(ampc, (1, 0), (2, 3)).requires_grad_() * 2
    flat = base.t().view(-1)
    with pytest.raises(RuntimeError, match="make the base contiguous first"):
        flat.mul_(2)
    assert base.sum().backward() is None


def test_sizes_after_another_tensor_take_its_order_where_asked(torch):
    def strides(m):
        models = [made(m, order, shape) for order in ((0, 2, 3, 1), (0, 1, 2, 3), (3, 1, 0, 2)) for shape in (SHAPE, (5, 2, 3, 4))]
        models += [made(m, (0, 2, 3, 4, 1), (2, 3, 2, 3, 2)), m.ones(3, 4).t(), m.ones(())]
        return [m.empty(0).resize_as_(t, **how).stride() for t in models for how in ({}, {"memory_format": m.preserve_format})]

    assert strides(ampc) == strides(torch)


def test_strides_of_new_dimensions_of_size_1(torch):
    def strides(m):
        x, row, one = m.ones(2, 3).t(), m.ones(5), m.tensor(1.0)
        return [t.expand(size).stride() for t, size in ((row, (1, 5)), (row, (1, 1, 5)), (row, (2, 1, 5)), (row, (1, 2, 5)), (x, (1, 3, 2)), (x, (1, 1, 3, 2)),
                                                        (one, (1, 1)), (m.ones(1, 5), (1, 3, 5)), (m.ones(0), (1, 0)))]

    assert strides(ampc) == strides(torch)
