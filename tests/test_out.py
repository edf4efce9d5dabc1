"""`out=` of another shape takes the result's, in its own storage; a warning tells of elements that went."""

import re
import warnings

import numpy as np
import pytest
from references import part

import ampc

FAMILIES = {  # one call of each way through the core, with the results' shapes
    "elementwise": (lambda lib, x, **k: lib.add(x, 1, **k), 1), "sum": (lambda lib, x, **k: lib.sum(x, 0, **k), 1),
    "composite": (lambda lib, x, **k: lib.outer(x[0], x[1], **k), 1), "product": (lambda lib, x, **k: lib.mm(x, x.t(), **k), 1),
    "joined": (lambda lib, x, **k: lib.cat([x, x], **k), 1), "counted": (lambda lib, x, **k: lib.masked_select(x, x > 0, **k), 1),
    "pair": (lambda lib, x, **k: lib.max(x, 0, **k), 2), "sorted": (lambda lib, x, **k: lib.sort(x, 1, **k), 2),
    "factors": (lambda lib, x, **k: lib.linalg.qr(x, **k), 2), "in Python": (lambda lib, x, **k: lib.norm(x, dim=1, **k), 1),
}


def values(lib):
    return lib.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])


def run(lib, call, n, shape):
    """(values of each result, texts of the warnings)"""
    x = values(lib)
    plain = call(lib, x)
    kinds = [plain.dtype] if n == 1 else [t.dtype for t in plain]
    outs = tuple(lib.zeros(shape, dtype=d) for d in kinds)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        got = call(lib, x, out=outs[0] if n == 1 else outs)
    assert (got is outs[0]) if n == 1 else all(g is o for g, o in zip(got, outs))
    return [(o.tolist(), tuple(o.shape), o.is_contiguous()) for o in outs], [str(w.message) for w in told], [w.filename for w in told]


@pytest.mark.parametrize("shape", [(0,), (2,), (7, 5), ()], ids=str)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_target_takes_the_result_s_shape(name, shape):
    call, n = FAMILIES[name]
    got, told, files = run(ampc, call, n, shape)
    plain = call(ampc, values(ampc))
    want = [(t.tolist(), tuple(t.shape), True) for t in ([plain] if n == 1 else plain)]
    assert got == want
    wrong = 0 if shape == (0,) else sum(shape != each[1] for each in want)
    assert len(told) == wrong and all("was resized" in text and "resize_(0)" in text for text in told)
    assert all(file == __file__ for file in files)  # the script's line


@pytest.mark.parametrize("name", FAMILIES)
def test_as_torch_resizes(name):
    torch = pytest.importorskip("torch")
    call, n = FAMILIES[name]
    for shape in part([(0,), (2,), (7, 5), ()], 2):
        mine, mine_told, _ = run(ampc, call, n, shape)
        theirs, theirs_told, _ = run(torch, call, n, shape)
        for (a, shape_a, _), (b, shape_b, _) in zip(mine, theirs):
            assert shape_a == shape_b
            np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-5, atol=1e-5)
        assert len(mine_told) == len(theirs_told)
        assert [t[:45] for t in mine_told] == [t[:45] for t in theirs_told]  # what scripts filter by


def test_the_memory_is_kept_where_it_reaches():
    base = ampc.zeros(8)
    where = base.data_ptr()
    with pytest.warns(UserWarning, match="resized"):
        ampc.add(ampc.ones(2, 3), 1, out=base)
    assert base.shape == (2, 3) and base.data_ptr() == where and base.untyped_storage().nbytes() == 32
    empty = ampc.zeros(6)[:0]
    there = empty._base
    ampc.add(ampc.ones(3), 1, out=empty)
    assert there.tolist() == [2, 2, 2, 0, 0, 0] and empty.data_ptr() == there.data_ptr()


def test_a_view_s_storage_grows_and_its_base_with_it():
    base = ampc.arange(4.0)
    view = base[1:3]
    with pytest.warns(UserWarning, match="resized"):
        ampc.mul(ampc.ones(6), 5, out=view)
    assert base.tolist() == [0, 5, 5, 5] and view.tolist() == [5] * 6 and view.storage_offset() == 1
    assert base.untyped_storage().nbytes() == 28 and base.data_ptr() + 4 == view.data_ptr()
    w = ampc.ones(6, requires_grad=True)  # what is recorded of it stays within its own elements
    (view.mul_(w)).sum().backward()
    assert w.grad.tolist() == [5] * 6 and base.tolist() == [0, 5, 5, 5]


def test_the_order_of_dimensions_in_memory_is_the_result_s():
    x = ampc.ones(2, 3, 4, 5).to(memory_format=ampc.channels_last)
    assert ampc.add(x, x, out=ampc.empty(0)).stride() == ampc.add(x, x).stride()
    matrix = ampc.arange(6.0).view(2, 3).t()
    assert ampc.linalg.qr(matrix, out=(ampc.empty(0), ampc.empty(0))).Q.stride() == ampc.linalg.qr(matrix).Q.stride()


@pytest.mark.parametrize("call", [
    lambda lib, x: lib.add(x, lib.tensor([[10.0], [20.0]]), out=x), lambda lib, x: lib.cat([x, x], out=x), lambda lib, x: lib.take(x, lib.tensor([1]), out=x),
    lambda lib, x: lib.gather(x, 0, lib.tensor([1]), out=x), lambda lib, x: lib.kthvalue(x, 1, out=(x, lib.zeros(1, dtype=lib.int64))),
    lambda lib, x: lib.index_select(x[:2], 0, lib.tensor([0]), out=x)])
def test_a_target_that_is_an_argument_must_have_the_result_s_shape(call):
    x = ampc.tensor([1.0, 2.0, 3.0])
    with pytest.raises(RuntimeError, match="`out` has shape .* shares the memory of an argument"):
        call(ampc, x)
    assert x.tolist() == [1, 2, 3]
    torch = pytest.importorskip("torch")
    with pytest.raises(RuntimeError):
        call(torch, torch.tensor([1.0, 2.0, 3.0]))


def test_a_target_of_the_result_s_shape_may_be_an_argument():
    x = ampc.tensor([1.0, 2.0])
    assert ampc.add(x, 10, out=x) is x and x.tolist() == [11, 12]
    ampc.add(x[:0], 1, out=x)  # an argument without elements has no memory to share
    assert x.shape == (0,)


def test_memory_of_others_does_not_grow():
    array = np.zeros(2, np.float32)
    with pytest.raises(RuntimeError, match="belongs to an array"):
        ampc.add(ampc.ones(3, device="cpu"), 1, out=ampc.from_numpy(array))
    assert array.tolist() == [0, 0]
    with pytest.warns(UserWarning, match="resized"):
        ampc.add(ampc.ones(1, device="cpu"), 1, out=ampc.from_numpy(array))  # which fits
    assert array.tolist() == [2, 0]


def test_tensors_without_values_take_shapes_too():
    x = ampc.ones(2, 3, device="meta")
    assert ampc.add(x, 1, out=ampc.empty(0, device="meta")).shape == (2, 3)
    with pytest.warns(UserWarning, match="resized"):
        assert ampc.mm(x, x.t(), out=ampc.empty(7, 5, device="meta")).shape == (2, 2)


def test_what_cannot_be_written_stays_as_it_is():
    out = ampc.zeros(2, dtype=ampc.int64)
    with pytest.raises(RuntimeError, match="cannot hold a result of float32"):
        ampc.add(ampc.ones(3), 0.5, out=out)
    assert out.shape == (2,)
    with pytest.raises(RuntimeError, match="gradients are recorded"):
        ampc.add(ampc.ones(3), 1, out=ampc.zeros(2, requires_grad=True))
    with pytest.raises(RuntimeError, match="cannot write into a given tensor"):
        ampc.diagonal(ampc.ones(2, 2), out=ampc.zeros(1))
    with pytest.raises(RuntimeError, match="the result has shape"):
        ampc.ones(2).add_(ampc.ones(3, 2))  # in place nothing takes a shape


def test_new_tensors_take_the_place_of_others_in_silence():
    for make, shape in ((lambda out: ampc.linspace(0, 1, 3, out=out), (3,)), (lambda out: ampc.eye(2, out=out), (2, 2)),
                        (lambda out: ampc.rand(4, out=out), (4,)), (lambda out: ampc.zeros(2, 3, out=out), (2, 3)),
                        (lambda out: ampc.normal(0.0, 1.0, (3,), out=out), (3,)), (lambda out: ampc.bernoulli(ampc.ones(3), out=out), (3,))):
        out = ampc.zeros(5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert make(out) is out and out.shape == shape


def test_a_warning_that_is_an_error_is_raised():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="resized"):
            ampc.add(ampc.ones(3), 1, out=ampc.zeros(2))


# an operand is x, float32 [2, 3], or n, int64; of results in pairs the second may have another dtype, too
DTYPES_OF_OUT = """lib.add(x, 1) | lib.exp(x) | lib.abs(x) | lib.neg(n) | lib.floor(x) | lib.round(x) | lib.clamp(x, 0, 1) | lib.clamp_min(x, 0) | lib.clamp(x, x, x) | lib.softmax(x, 0) | lib.log_softmax(x, 1)
lib.cumsum(x, 0) | lib.logcumsumexp(x, 0) | lib.cummax(x, 0) | lib.sum(x, 0) | lib.mean(x, 0) | lib.prod(n, 0) | lib.amax(x, 0) | lib.argmax(x, 1) | lib.max(x, 0) | lib.min(x, 1)
lib.sort(x, 1) | lib.topk(x, 2) | lib.kthvalue(x, 2) | lib.median(x, 1) | lib.mode(n, 1) | lib.index_select(x, 0, n[0]) | lib.gather(x, 1, n) | lib.take(x, n) | lib.scatter(x, 1, n, x)
lib.masked_select(x, x > 0) | lib.nonzero(x) | lib.where(x > 0, x, -x) | lib.mm(x, x.t()) | lib.matmul(x, x[0]) | lib.dot(x[0], x[0]) | lib.outer(x[0], x[0]) | lib.addmm(x, x[:, :2], x)
lib.cat([x, x]) | lib.stack([x, x]) | lib.tril(x) | lib.diag(x[0]) | lib.diff(x) | lib.cross(x, x) | lib.bucketize(x, x[0].sort()[0]) | lib.isin(n, n) | lib.norm(x, dim=1) | lib.linalg.norm(x)
lib.linalg.qr(x) | lib.linalg.svdvals(x) | lib.linalg.det(x @ x.t()) | lib.linalg.inv(x @ x.t()) | lib.quantile(x, 0.5, dim=1) | lib.histc(x) | lib.nn.functional.gelu(x)
lib.nn.functional.linear(x, x) | lib.nn.functional.softplus(x) | lib.nn.functional.avg_pool2d(x[None], 2) | lib.eq(x, 1) | lib.logical_not(x) | lib.signbit(x) | lib.tensordot(x, x.t(), 1)
lib.arange(3) | lib.arange(3.0, dtype=lib.float32) | lib.ones(3) | lib.ones(3, dtype=lib.float32) | lib.linspace(0, 1, 3) | lib.full((2,), 7) | lib.eye(2) | lib.zeros(2, dtype=lib.int64)"""


def writes_into(lib, call, kind):
    """What the call says of an `out` of that dtype, one message for each result that is given it."""
    given = {"lib": lib, "x": lib.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]]), "n": lib.tensor([[0, 1, 1], [1, 0, 0]])}
    plain = eval(call, given)
    kinds = [plain.dtype] if isinstance(plain, lib.Tensor) else [t.dtype for t in plain]
    for at in range(len(kinds)):
        outs = [lib.empty(0, dtype=getattr(lib, kind) if i == at else own) for i, own in enumerate(kinds)]
        try:
            eval(f"{call[:-1]}, out=out)", {**given, "out": outs[0] if len(outs) == 1 else tuple(outs)})
            yield None
        except (RuntimeError, TypeError) as error:
            yield error


@pytest.mark.parametrize("kind", ["float64", "float32", "float16", "int64", "uint8", "bool"])
def test_a_dtype_of_out_is_taken_where_torch_takes_it(kind):
    torch = pytest.importorskip("torch")
    for call in DTYPES_OF_OUT.replace("\n", " | ").split(" | "):
        if kind == "bool" and re.search("arange|linspace|cumsum|prod", call):  # of which torch has no kernel, or one that tells truth values
            continue
        for mine, theirs in zip(writes_into(ampc, call, kind), writes_into(torch, call, kind), strict=True):
            assert (mine is None) == (theirs is None) and (theirs is None or isinstance(mine, type(theirs))), (call, kind, mine, theirs)
