"""Results of views in memory of their own, tensors of any layout, and what is padded or found by a fixed size."""

import copy
import itertools

import pytest
from where import DEVICE

import ampc

X = ampc.arange(24.0, device=DEVICE).reshape(2, 3, 4)
COPIES = {"alias_copy": (), "as_strided_copy": ([2, 2], [1, 2], 3), "detach_copy": (), "diagonal_copy": (0, 1, 2), "expand_copy": ([2, 3, 4],),
          "narrow_copy": (2, 1, 2), "permute_copy": ([2, 0, 1],), "select_copy": (1, 2), "slice_copy": (2, 1, 4, 2), "squeeze_copy": (),
          "transpose_copy": (0, 2), "unfold_copy": (2, 2, 1), "unsqueeze_copy": (1,), "view_copy": ([6, 4],)}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_has_the_values_of_the_view_and_memory_of_its_own(torch, name):
    got, want = getattr(ampc, name)(X, *COPIES[name]), getattr(torch, name)(torch.arange(24.0).reshape(2, 3, 4), *COPIES[name])
    assert got.tolist() == want.tolist() and not ampc._C._same_storage(got, X)
    out = ampc.empty(0)
    assert getattr(ampc, name)(X, *COPIES[name], out=out) is out and out.equal(got)
    x = X.clone().requires_grad_()
    if name != "detach_copy":
        getattr(ampc, name)(x, *COPIES[name]).sum().backward()
        assert 0 < x.grad.sum().item() >= got.numel() - 0.5


@pytest.mark.parametrize(("name", "args"), [("unbind_copy", (1,)), ("split_copy", (2, 1)), ("split_with_sizes_copy", ([1, 3], 2))])
def test_parts_are_copies(torch, name, args):
    got, want = getattr(ampc, name)(X, *args), getattr(torch, name)(torch.arange(24.0).reshape(2, 3, 4), *args)
    assert [g.tolist() for g in got] == [w.tolist() for w in want]
    assert not any(ampc._C._same_storage(g, X) for g in got)
    out = tuple(ampc.empty(0) for _ in got)
    assert getattr(ampc, name)(X, *args, out=out)[0].equal(got[0]) and out[-1].equal(got[-1])
    with pytest.raises(RuntimeError, match="expected"):
        getattr(ampc, name)(X, *args, out=out[1:])


def test_unsafe_parts():
    assert [p.shape[0] for p in X.unsafe_chunk(2)] == [1, 1] == [p.shape[0] for p in ampc.unsafe_split(X, 1)]
    assert [p.shape[2] for p in X.unsafe_split_with_sizes([1, 3], 2)] == [1, 3]


def test_layouts_of_empty_tensors(torch):
    for f, args in (("empty_strided", ((2, 3), (1, 2))), ("empty_strided", ((2, 3), (0, 5))), ("empty_strided", ((0, 3), (7, 1))),
                    ("empty_permuted", ((2, 3, 4), (2, 0, 1)))):
        mine, their = getattr(ampc, f)(*args, dtype=ampc.int8), getattr(torch, f)(*args, dtype=torch.int8)
        assert tuple(mine.shape) == tuple(their.shape) and mine.stride() == their.stride() and mine.dtype is ampc.int8
    assert X.double().new_empty_strided((2, 3), (1, 2)).dtype is ampc.float64
    for f, args in (("empty_strided", ((2, 3), (1,))), ("empty_strided", ((2,), (-1,))), ("empty_strided", ((8, 8), (2**61, 1))),
                    ("empty_permuted", ((2, 3), (0, 0)))):
        with pytest.raises(RuntimeError, match=f):
            getattr(ampc, f)(*args)


def test_padding_of_nothing_has_a_gradient():
    x = ampc.zeros(0, 3, requires_grad=True)
    y = ampc.constant_pad_nd(x, (1, 2), 1.0)
    y.sum().backward()
    assert y.shape == (0, 6) and x.grad.shape == (0, 3)
    assert ampc.constant_pad_nd(ampc.ones(2), (1, 1), 5.0).tolist() == [5, 1, 1, 5]


def test_nonzero_of_a_fixed_size():
    x = ampc.tensor([[0, 1], [2, 3]])
    assert ampc.nonzero_static(x, size=2).tolist() == [[0, 1], [1, 0]]
    assert x.nonzero_static(size=4, fill_value=-7).tolist() == [[0, 1], [1, 0], [1, 1], [-7, -7]]
    with pytest.raises(RuntimeError, match="size"):
        x.nonzero_static(size=-1)


def test_normal_writes_into_out():
    out = ampc.empty(0)
    assert ampc.normal(ampc.zeros(5), 1.0, out=out) is out and out.shape == (5,)
    with pytest.raises(NotImplementedError, match="out"):
        ampc.normal(ampc.zeros(5), 1.0, out=ampc.empty(5, dtype=ampc.int64))


def test_deep_copies_of_tensors_on_the_same_memory_share_theirs(torch):
    def outcome(library):
        notes = []
        x = library.arange(6.0).view(2, 3)
        for tensors in ((x, x[0]), (x[0], x), (x.t(), x[:, 1:2]), (x[:1].expand(2, 3), x), (library.zeros(0), library.zeros(0)[:0])):
            first, second = copy.deepcopy(tensors)
            notes.append((tuple(first.stride()), tuple(second.stride()), first.storage_offset(), second.storage_offset(), second.tolist()))
            if first.numel():
                first[0] = 9
            notes.append(second.tolist())
        layer = library.nn.Linear(2, 2)
        with library.no_grad():
            layer.weight.fill_(3)
        layer.row = layer.weight.data[1]
        twin = copy.deepcopy(layer)
        with library.no_grad():
            twin.weight.fill_(5)
        return notes, x.tolist(), twin.row.tolist(), type(twin.weight).__name__, twin.weight.requires_grad, layer.row.tolist() == twin.row.tolist()

    assert outcome(ampc) == outcome(torch)


WRITES = {"add_": lambda T, t, o: t.add_(o), "mul_": lambda T, t, o: t.mul_(3), "exp_": lambda T, t, o: t.exp_(), "copy_": lambda T, t, o: t.copy_(o),
          "cast": lambda T, t, o: t.copy_((o * 5).int()), "fill_": lambda T, t, o: t.fill_(2), "zero_": lambda T, t, o: t.zero_(), "row": lambda T, t, o: t.sub_(o[:1]),
          "column": lambda T, t, o: t.div_(o[..., :1]), "masked_fill_": lambda T, t, o: t.masked_fill_(o > 0, 7), "lerp_": lambda T, t, o: t.lerp_(o, 0.3),
          "addcmul_": lambda T, t, o: t.addcmul_(o, o, value=0.5), "out=": lambda T, t, o: T.add(o, 1, out=t), "out= itself": lambda T, t, o: T.mul(t, t, out=t),
          "out= of another order": lambda T, t, o: T.sub(o.mT.contiguous().mT, t, out=t), "cumsum_": lambda T, t, o: t.cumsum_(1), "softmax": lambda T, t, o: T.softmax(o, 1, out=t),
          "sorted": lambda T, t, o: t.copy_(t.sort(1)[0]), "flipped": lambda T, t, o: t.copy_(t.flip(0)), "index_add_": lambda T, t, o: t.index_add_(0, T.tensor([0, 1]), o[:2])}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("part", ["whole", "part", "wide"])
def test_writes_into_tensors_of_any_order(torch, write, part):
    """Of memory: the elements are visited in the order in which they lie there."""
    for order in itertools.permutations(range(3)):
        done = []
        for T in (torch, ampc):
            base = T.arange(60.0).sin().reshape(3, 4, 5) if part != "wide" else T.arange(3.0 * 40 * 50).sin().reshape(3, 40, 50)
            target = base.permute(order) if part != "part" else base.permute(order)[:, 1:, ::2]
            WRITES[write](T, target, (T.arange(float(target.numel())) * 0.7).cos().reshape(target.shape))
            done.append(T.asarray(base.tolist()).reshape(-1).tolist())
        assert done[1] == pytest.approx(done[0], rel=1e-5, abs=1e-5), order


@pytest.mark.parametrize("shape", [(1024, 300), (512, 257), (2, 1024, 320), (3000, 1100)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_long_runs_across_memory_go_in_parts(shape, dtype):
    """Of matrices so large that the lines of one run do not stay in the cache."""
    count = 1
    for n in shape:
        count *= n
    x = (ampc.arange(count) % 251).to(getattr(ampc, dtype)).reshape(shape)
    want = x.long().numpy(force=True).swapaxes(-1, -2)
    assert (x.mT.contiguous().long().numpy(force=True) == want).all() and (x.mT.long().numpy(force=True) == want).all()
    assert ((x.mT + x.mT).long().numpy(force=True) == (want > 0 if dtype == "bool" else (x + x).long().numpy(force=True).swapaxes(-1, -2))).all()
    out = ampc.zeros(shape, dtype=x.dtype).mT
    out.copy_(x.mT.contiguous())
    assert (out.long().numpy(force=True) == want).all()
