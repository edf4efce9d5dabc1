"""Lists of any length: joining them, cutting a tensor into them, and what autograd and optimizers do with them. Time grows as the list does."""

import contextlib
import time

import numpy as np
import pytest
from where import SIMULATED, settled, simulated, simulator

import ampc
from ampc import nn

MANY = 600 if SIMULATED else 100_000  # more than any place on the stack holds; the simulator takes some 0.1 ms for a launch
SOME = min(MANY, 10_000)
WIDTH = 10
EPS = np.finfo(np.float64).eps


@contextlib.contextmanager
def soon():
    """Some tenths of a second for what takes time as the list grows; with the square of its length it would be minutes. Time of this
    process, whatever else the machine does."""
    begin = time.process_time()
    yield
    settled()
    assert time.process_time() - begin < 8


def values(*shape):
    return np.random.default_rng(0).standard_normal(shape)


def leaves(rows, dtype="float64"):
    return [t.detach().requires_grad_() for t in ampc.tensor(rows, dtype=getattr(ampc, dtype)).unbind()]


def numpy(tensors):
    return ampc.stack([t.detach() for t in tensors]).cpu().numpy()


# -- joining -------------------------------------------------------------------------------------------------

JOINS = {
    "cat": np.concatenate, "stack": np.stack, "hstack": np.hstack, "vstack": np.vstack, "dstack": np.dstack, "column_stack": np.column_stack,
    "stack(1)": lambda rows: np.stack(rows, 1), "cat(1)": lambda rows: np.concatenate([r.reshape(2, -1) for r in rows], 1),
}


def joined(how, tensors):
    if how == "cat(1)":
        return ampc.cat([t.reshape(2, -1) for t in tensors], 1)
    return ampc.stack(tensors, 1) if how == "stack(1)" else getattr(ampc, how)(tensors)


@pytest.mark.parametrize("how", JOINS)
def test_joining_and_its_derivatives(how):
    """y = join(x): first derivatives of sum(w y^2) are 2 w x, and of sum(v join(those)) 2 w v, with a rounding for each product."""
    rows = values(MANY if how in ("cat", "stack") else SOME, WIDTH)
    x = leaves(rows)
    places = JOINS[how](list(np.arange(rows.size).reshape(rows.shape)))  # where each value goes
    w, v = values(2, *places.shape)
    wide, there = np.empty(rows.size), np.empty(rows.size)
    wide[places.reshape(-1)], there[places.reshape(-1)] = w.reshape(-1), v.reshape(-1)
    w, v = ampc.tensor(w), ampc.tensor(v)
    with soon():
        y = joined(how, x)
    assert np.array_equal(y.detach().cpu().numpy(), rows.reshape(-1)[places])
    with soon():
        y.backward(w)
    assert np.array_equal(numpy([t.grad for t in x]).reshape(-1), wide)
    with soon():
        g = ampc.autograd.grad((joined(how, x).square() * w).sum(), x, create_graph=True)
    assert np.allclose(numpy(g).reshape(-1), 2 * wide * rows.reshape(-1), rtol=4 * EPS, atol=0)
    with soon():
        h = ampc.autograd.grad((joined(how, list(g)) * v).sum(), x)
    assert np.allclose(numpy(h).reshape(-1), 2 * wide * there, rtol=4 * EPS, atol=0)


@pytest.mark.parametrize("low", [None, "float16", "bfloat16"])
def test_mixed_dtypes(low):
    """Promoted to the widest, exactly, under autocast too; gradients come in each one's own dtype, rounded once."""
    rows = np.round(values(MANY, 4) * 8) / 8  # exact in every dtype
    dtypes = [ampc.float16, ampc.float32, ampc.bfloat16, ampc.int64]
    rows[3::4] = np.round(rows[3::4])
    x = [t.detach().to(dtypes[i % 4]) for i, t in enumerate(ampc.tensor(rows).unbind())]
    x = [t.requires_grad_() if t.is_floating_point() else t for t in x]
    w = values(MANY, 4).astype(np.float32)
    with soon(), ampc.autocast(x[0].device.type, dtype=getattr(ampc, low or "bfloat16"), enabled=bool(low)):
        y = ampc.cat(x)
    assert y.dtype == ampc.float32 and np.array_equal(y.detach().cpu().numpy(), rows.reshape(-1).astype(np.float32))
    with soon():
        y.backward(ampc.tensor(w.reshape(-1)))
    for k, dtype in enumerate(dtypes[:3]):
        grads = [t.grad for t in x[k::4]]
        assert all(g.dtype == dtype for g in grads)
        assert np.array_equal(ampc.cat(grads).float().cpu().numpy(), ampc.tensor(w[k::4]).to(dtype).float().cpu().numpy().reshape(-1))
    assert all(t.grad is None for t in x[3::4])


@pytest.mark.parametrize("how", ["cat", "stack", "hstack"])
def test_into_a_given_tensor(how):
    rows = values(MANY, WIDTH)
    x = [t.detach() for t in leaves(rows)]
    want = JOINS[how](list(rows))
    empty, wide = ampc.empty(0, dtype=ampc.float64), ampc.zeros(want.shape, dtype=ampc.float64)
    with soon():
        for out in (empty, wide):
            assert getattr(ampc, how)(x, out=out) is out
            assert np.array_equal(out.cpu().numpy(), want)
    other = ampc.zeros(3, dtype=ampc.float64)
    with pytest.warns(UserWarning, match="resized"):
        ampc.cat(x, out=other)
    assert np.array_equal(other.cpu().numpy(), JOINS["cat"](list(rows)))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_parts_of_every_kind(dim):
    """Small and large ones, contiguous or not, empty, in other dtypes."""
    parts = []
    for i, size in enumerate([1, 5, 0, 9000, 2, 3] * 30):
        shape = [2, 3, 4]
        shape[dim] = size
        part = values(*shape) * 8
        parts.append(ampc.tensor(part.swapaxes(0, 2).copy()).transpose(0, 2) if i % 4 == 1 else ampc.tensor(part))
        parts[-1] = parts[-1].to([ampc.float64, ampc.float32, ampc.int64, ampc.float64][i % 4])
    want = np.concatenate([p.cpu().numpy().astype(np.float64) for p in parts], dim)
    assert np.array_equal(ampc.cat(parts, dim).cpu().numpy(), want)
    if dim:
        assert ampc.cat([p[:0] for p in parts], dim).shape == (0, *want.shape[1:])
    for dtype in (ampc.bool, ampc.uint8, ampc.int16, ampc.float16, ampc.bfloat16):
        some = [p.to(dtype) for p in parts[:12]]
        assert np.array_equal(ampc.cat(some, dim).double().cpu().numpy(), np.concatenate([p.double().cpu().numpy() for p in some], dim))


@simulated
def test_one_launch_joins_many():
    x = [ampc.ones(10) for _ in range(600)]
    settled()
    before = simulator("launches")
    ampc.cat(x)
    assert simulator("launches") - before == 7


def test_one_among_many_that_does_not_fit():
    x = [ampc.ones(3)] * MANY
    with soon():
        with pytest.raises(RuntimeError, match=f"tensor 1 .* tensor {MANY} "):
            ampc.cat([ampc.ones(0), *x[1:], ampc.ones(2, 3)])
        with pytest.raises(RuntimeError, match=f"tensor {MANY - 1}\\)"):
            ampc.stack([*x[1:], ampc.ones(2)])
        with pytest.raises(TypeError, match=f"position {MANY - 1}"):
            ampc.cat([*x[1:], 3.0])


def test_more_than_can_be_counted():
    wide = ampc.ones(1).expand(2**58)
    for n in (8, 32, 64, 65):  # 64 times 2^58 is 0 in 64 bits
        with pytest.raises((RuntimeError, MemoryError), match="more elements|cannot allocate|out of memory"):
            ampc.cat([wide] * n)


def test_some_that_want_no_gradient():
    x, y = ampc.ones(3, requires_grad=True), ampc.zeros(2)
    ampc.cat([*[y] * 300, x, *[y] * 300]).backward(ampc.arange(1203.0))
    assert x.grad.tolist() == [600, 601, 602]
    ampc.cat([x, ampc.zeros(0), x] * 200).sum().backward()  # the same tensor, again and again
    assert x.grad.tolist() == [1000, 1001, 1002]


def test_a_list_that_is_emptied_meanwhile():
    """What a list holds lives as long as the call: another argument's __index__ may empty the list, as may another thread."""
    class Emptying:
        def __index__(self):
            tensors.clear()
            return 0

    tensors = [ampc.full((4,), float(i)) for i in range(50)]
    got = ampc.cat(tensors, Emptying())
    assert tensors == [] and got.tolist() == [float(i) for i in range(50) for _ in range(4)]


def test_lists_that_the_result_limits():
    """Where a result has a dimension for each tensor, or an index is for a dimension, there is no long list to take."""
    with soon():
        with pytest.raises((RuntimeError, ValueError), match="12 dimensions"):
            ampc.meshgrid(*[ampc.ones(1)] * MANY)
        with pytest.raises(IndexError, match="1 dimension"):
            ampc.index_put(ampc.ones(3), [ampc.tensor([0])] * MANY, ampc.ones(1))
        with pytest.raises(IndexError, match="1 dimension"):
            ampc.ones(3)[(ampc.tensor([0]),) * MANY]


@pytest.mark.parametrize("name", ["cat", "stack", "hstack", "vstack", "dstack", "column_stack"])
def test_empty_lists(name, torch):
    with pytest.raises((RuntimeError, ValueError)) as theirs:
        getattr(torch, name)([])
    with pytest.raises(theirs.type, match=f"{name}: needs at least one tensor"):
        getattr(ampc, name)([])


# -- products and grids ----------------------------------------------------------------------------------------------


def test_chains_of_matrices():
    """Rotations about one axis: angles add up, with a rounding or so for each product."""
    for n in (33, 300, 3000):
        angle = values(n) / n
        matrices = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], 1).reshape(n, 2, 2)
        x = leaves(matrices)
        with soon():
            y = ampc.linalg.multi_dot(x)
            y[0, 0].backward()
        total = angle.sum()
        assert np.allclose(y.detach().cpu().numpy(), [[np.cos(total), -np.sin(total)], [np.sin(total), np.cos(total)]], rtol=0, atol=4 * n * EPS)
        at = n // 2  # d y[0, 0] / d x[at] = (the first row of what is before) (the first column of what is after)
        before, after = angle[:at].sum(), angle[at + 1:].sum()
        want = np.outer([np.cos(before), -np.sin(before)], [np.cos(after), np.sin(after)])
        assert np.allclose(x[at].grad.cpu().numpy(), want, rtol=0, atol=4 * n * EPS)
        assert np.array_equal(ampc.chain_matmul(*x).detach().cpu().numpy(), y.detach().cpu().numpy())


def test_einsum_of_many():
    n = min(MANY, 3000)
    rows = 1 + values(n, 3) / n
    x = leaves(rows)
    with soon():
        y = ampc.einsum(",".join("a" * n) + "->a", *x)
        y.sum().backward()
    product = rows.prod(0)
    assert np.allclose(y.detach().cpu().numpy(), product, rtol=2 * n * EPS)
    assert np.allclose(x[7].grad.cpu().numpy(), product / rows[7], rtol=2 * n * EPS)


def test_every_choice_of_many(torch):
    x = [ampc.tensor([float(i), float(i) + 0.5]) for i in range(13)]  # more vectors than a tensor has dimensions
    want = torch.cartesian_prod(*(torch.tensor(t.tolist()) for t in x))
    assert ampc.cartesian_prod(*x).tolist() == want.tolist()
    with soon():
        assert ampc.cartesian_prod(*[ampc.ones(1)] * MANY).shape == (1, MANY)
    for bad in (ampc.ones(()), ampc.ones(2, 2)):
        with pytest.raises(RuntimeError, match="cartesian_prod: expected .* vector"):
            ampc.cartesian_prod(bad, ampc.ones(2))


def test_shapes_of_many():
    x = [ampc.ones(3, 1)] * (SOME - 1) + [ampc.ones(2)]
    with soon():
        assert {tuple(t.shape) for t in ampc.broadcast_tensors(*x)} == {(3, 2)}
        assert len(ampc.atleast_2d(*x)) == SOME
        with pytest.raises(RuntimeError, match="4.*3|3.*4") as e:
            ampc.broadcast_tensors(*x, ampc.ones(4, 1))
    assert len(str(e.value)) < 300


def test_blocks_along_the_diagonal():
    n = 300
    x = leaves(values(n, 1, 2))
    y = ampc.block_diag(*x)
    want = np.zeros((n, 2 * n))
    for i in range(n):
        want[i, 2 * i:2 * i + 2] = x[i].detach().cpu().numpy()
    assert np.array_equal(y.detach().cpu().numpy(), want)
    (y * y).sum().backward()
    assert np.array_equal(x[200].grad.cpu().numpy(), 2 * x[200].detach().cpu().numpy())
    assert ampc.block_diag().shape == (1, 0)


# -- cutting a tensor into parts ---------------------------------------------------------------------------------------

CUTS = {
    "unbind": (lambda x: x.unbind(), lambda part: part), "iter": (lambda x: tuple(x), lambda part: part), "split": (lambda x: x.split(1), lambda part: part[None]),
    "split sizes": (lambda x: x.split([1] * len(x)), lambda part: part[None]), "chunk": (lambda x: x.chunk(len(x)), lambda part: part[None]),
    "tensor_split": (lambda x: x.tensor_split(len(x)), lambda part: part[None]), "unbind(1)": (lambda x: x.T.unbind(1), lambda part: part),
    "vmap": (None, lambda part: part),
}


@pytest.mark.parametrize("how", CUTS)
def test_parts_and_their_derivatives(how):
    n = MANY if how in ("unbind", "split") else SOME
    rows, (w, v) = values(n, WIDTH), values(2, n, WIDTH)
    x = ampc.tensor(rows, requires_grad=True)
    cut, form = CUTS[how]
    weights, others = ([ampc.tensor(form(r)) for r in side] for side in (w, v))

    def squared(x, sides):
        if how == "vmap":
            return ampc.func.vmap(lambda part, side: (part * part * side).sum())(x, ampc.stack(sides)).sum()
        y = ampc.cat(cut(x))
        return (y * y * ampc.cat(sides)).sum()

    with soon():
        parts = cut(x) if cut else x.unbind()
    assert len(parts) == n and all(np.array_equal(parts[i].detach().cpu().numpy(), form(rows[i])) for i in (0, 77, n - 1))
    with soon():
        squared(x, weights).backward()
    assert np.allclose(x.grad.cpu().numpy(), 2 * rows * w, rtol=4 * EPS, atol=0)
    with soon():
        g, = ampc.autograd.grad(squared(x, weights), x, create_graph=True)
        h, = ampc.autograd.grad(squared(g, others), x)
    assert np.allclose(h.cpu().numpy(), 2 * (2 * rows * w) * v * 2 * w, rtol=16 * EPS, atol=0)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_parts_in_use_and_others(dim):
    """Those that nobody used have gradient 0, wherever they lie."""
    x = ampc.randn(4, 4, 5, dtype=ampc.float64, requires_grad=True)
    for used in ([0], [3], [1, 3], [0, 1, 2, 3], []):
        def f(x, used=used):
            parts = x.unbind(dim)
            return sum(parts[i].square().sum() * (i + 1) for i in used) + x.sum() * 0
        f(x).backward()
        want = np.zeros((4, 4, 5))
        at = [slice(None)] * 3
        for i in used:
            at[dim] = i
            want[tuple(at)] = 2 * (i + 1) * x.detach().cpu().numpy()[tuple(at)]
        assert np.array_equal(x.grad.cpu().numpy(), want)
        x.grad = None
        if used == [1, 3]:
            ampc.autograd.gradcheck(f, (x,))
            ampc.autograd.gradgradcheck(f, (x,))


def test_parts_of_several_sizes():
    x = ampc.randn(3, 9, dtype=ampc.float64, requires_grad=True)

    def f(x):
        a, empty, b, c = x.split([2, 0, 4, 3], 1)
        d, e, g = x.tensor_split((6, 2), 1)  # these overlap
        return a.sum() * b.prod() + c.pow(3).sum() + empty.sum() + d.square().sum() * g.sum() + e.sum()
    ampc.autograd.gradcheck(f, (x,))
    ampc.autograd.gradgradcheck(f, (x,))
    assert [p.shape for p in x.split([2, 0, 4, 3], -1)] == [(3, 2), (3, 0), (3, 4), (3, 3)]


def test_bad_cuts(torch):
    """As torch: the same kinds of exception, and results of the same shapes where there is nothing to cut."""
    def told(library, f):
        try:
            return [tuple(p.shape) for p in f(library)]
        except (RuntimeError, IndexError, TypeError) as error:
            return type(error)
    for f in [
        lambda T: T.ones(3).split([1, 1]), lambda T: T.ones(3).split([4, -1]), lambda T: T.ones(3).split(0), lambda T: T.ones(0).split(0), lambda T: T.ones(0).split(2),
        lambda T: T.ones(0).split([]), lambda T: T.ones(3).split(-1), lambda T: T.ones(()).split(1), lambda T: T.ones(()).unbind(), lambda T: T.ones(3).unbind(3),
        lambda T: T.ones(0, 3).unbind(), lambda T: T.ones(0, 3).chunk(4), lambda T: T.ones(3).split(2, 5), lambda T: T.ones(3).chunk(0), lambda T: T.ones(3).split(2.0),
        lambda T: T.ones(3).split([1.0, 2]), lambda T: T.ones(3).split((1, 2)), lambda T: T.arange(6).tensor_split((3, 1)), lambda T: T.ones(3).split([2**62, 2**62, 3]),
    ]:
        assert told(ampc, f) == told(torch, f)


def test_writing_into_parts():
    """Parts are views. Under no_grad they may be written; a write into the whole changes the history of every part."""
    x = ampc.zeros(6)
    for i, part in enumerate(x.split(2)):
        part.fill_(i)
    assert x.tolist() == [0, 0, 1, 1, 2, 2]
    leaf = ampc.ones(6, requires_grad=True)
    whole = leaf * 2
    a, b, c = whole.split(2)
    with pytest.raises(RuntimeError, match="unbind, split and chunk"):
        a.add_(1)
    whole.tensor_split(3)[0].add_(1)  # torch allows this one
    whole.mul_(3)
    (a.sum() + 10 * c.sum()).backward()
    assert leaf.grad.tolist() == [6, 6, 0, 0, 60, 60] and a.tolist() == [9, 9]


# -- autograd's own lists -------------------------------------------------------------------------------------------------


def test_gradients_for_many_inputs():
    rows = values(MANY, 2)
    x = leaves(rows)
    y = ampc.cat(x).square().sum()
    with soon():
        g = ampc.autograd.grad(y, x, retain_graph=True)
    assert np.array_equal(numpy(g), 2 * rows)
    with soon():
        y.backward(inputs=x)
    assert np.array_equal(numpy([t.grad for t in x]), 2 * rows)


def test_an_input_asked_for_twice():
    x, seen = ampc.ones(2, requires_grad=True), []
    x.register_hook(lambda g: seen.append(g.tolist()))
    a, b, c = ampc.autograd.grad((x * 3).sum(), (x, x, x))
    assert a.tolist() == b.tolist() == c.tolist() == [3, 3] and seen == [[3, 3]]


def test_gradients_from_many_roots():
    rows = values(MANY, 2)
    x = leaves(rows)
    with soon():
        ampc.autograd.backward([t.square().sum() for t in x])
    assert np.array_equal(numpy([t.grad for t in x]), 2 * rows)
    whole = ampc.tensor(rows, requires_grad=True)
    with soon():
        g, = ampc.autograd.grad(whole.unbind(), whole, grad_outputs=[t.detach() for t in x])
    assert np.array_equal(g.cpu().numpy(), rows)


def test_a_function_of_many():
    class Doubled(ampc.autograd.Function):
        @staticmethod
        def forward(ctx, *x):
            outputs = tuple(t * t for t in x)
            ctx.save_for_backward(*x, *outputs)
            ctx.mark_non_differentiable(*outputs[::2])
            return outputs + x

        @staticmethod
        def backward(ctx, *g):
            n = len(g) // 2
            return tuple(2 * s * a + b for s, a, b in zip(ctx.saved_tensors, g[:n], g[n:])) + (None,) * n

    rows = values(SOME, 2)
    x = leaves(rows)
    with soon():
        y = Doubled.apply(*x)
        ampc.stack(y).sum().backward()
    want = 2 * rows + 1
    want[::2] = 1
    assert np.array_equal(numpy([t.grad for t in x]), want)
    assert not y[0].requires_grad and y[1].requires_grad


def test_hooks_on_many_saved_tensors():
    rows = values(SOME, 2)
    x = leaves(rows)
    seen = []
    with soon():
        with ampc.autograd.graph.saved_tensors_hooks(lambda t: seen.append(0) or t, lambda t: t):
            y = ampc.cat([(t + 0).square() for t in x])
        y.sum().backward()
    assert len(seen) == SOME and np.array_equal(numpy([t.grad for t in x]), 2 * rows)


# -- parameters, batches, sequences ------------------------------------------------------------------------------------------


def test_many_parameters():
    n = SOME
    rows = values(n, 2).astype(np.float32)
    params = [nn.Parameter(t) for t in ampc.tensor(rows).unbind()]
    with soon():
        vector = nn.utils.parameters_to_vector(params)
        (vector * vector).sum().backward()
        norm = nn.utils.clip_grad_norm_(params, 1.0)
        opt = ampc.optim.SGD(params, lr=0.5)
        opt.step()
    wide = 2 * rows.astype(np.float64)
    want = np.sqrt((wide**2).sum())
    assert abs(norm.item() - want) < 4 * n * np.finfo(np.float32).eps * want
    moved = rows - 0.5 * wide / want  # torch divides by the norm + 1e-6
    assert np.allclose(numpy(params), moved, rtol=1e-5, atol=1e-7)
    with soon():
        nn.utils.vector_to_parameters(ampc.arange(2.0 * n), params)
    assert params[-1].tolist() == [2 * n - 2, 2 * n - 1]


def test_lbfgs_takes_many_parameters():
    params = [nn.Parameter(ampc.full((2,), float(i % 7))) for i in range(300)]
    opt = ampc.optim.LBFGS(params, lr=1.0, max_iter=4)

    def closure():
        opt.zero_grad()
        loss = sum((p - 1).square().sum() for p in params)
        loss.backward()
        return loss
    opt.step(closure)
    assert closure().item() < 1e-6


def test_sequences():
    n = min(MANY, 3000)
    lengths = np.arange(n) % 4 + 1
    x = [ampc.full((int(k), 2), float(i), dtype=ampc.float64, requires_grad=True) for i, k in enumerate(lengths)]
    with soon():
        padded = nn.utils.rnn.pad_sequence(x, batch_first=True)
        back = nn.utils.rnn.unpad_sequence(padded, ampc.tensor(lengths), batch_first=True)
        ampc.cat([b * b for b in back]).sum().backward()
    assert padded.shape == (n, 4, 2) and all(np.array_equal(t.grad.cpu().numpy(), np.full((k, 2), 2.0 * i)) for i, (t, k) in enumerate(zip(x, lengths)))


def test_a_recurrent_network_over_many_steps():
    """Gradients of gradients go step by step, in other operators."""
    steps = 300
    cell = nn.RNN(2, 3).double()
    x = ampc.randn(steps, 2, 2, dtype=ampc.float64, requires_grad=True)
    with soon():
        plain, = ampc.autograd.grad(cell(x)[0].sum(), x)
        g, = ampc.autograd.grad(cell(x)[0].sum(), x, create_graph=True)
        g.square().sum().backward()
    assert ampc.allclose(g.detach(), plain, rtol=1e-12) and x.grad.abs().sum().item() > 0


def test_the_doctor_watches_long_lists():
    with pytest.warns(ampc.doctor.DoctorWarning), ampc.doctor(stop=False) as found, soon():
        y = ampc.cat([ampc.full((2,), 1e30), *[ampc.ones(2)] * 999]) * 1e30
    assert y.isinf().any() and "mul" in str(found.report())


def test_memory_of_many_tensors_is_freed_in_any_order():
    """Every second one, and then those between, each of which joins what lies free on both sides; and what then has to be found again."""
    few = 100_000  # no kernel is launched
    with soon():
        for _ in range(2):
            x = [ampc.empty(128 * (1 + (i % 7 == 0))) for i in range(few)]
            x[::2] = [None] * (few // 2)
            x[1::4] = [None] * (few // 4)
            for i in np.random.default_rng(0).permutation(few):
                x[i] = None
