"""torch._foreach_add and its kin, and torch.utils._foreach_utils, beside torch; where it is absent they skip."""

import numpy as np
import pytest
from references import R
from where import DEVICE

import ampc
from ampc._tensor import foreach as _foreach

UNARY = sorted(name for name, f in vars(_foreach).items() if name.startswith("_foreach_") and getattr(f, "__closure__", None) and f.__code__.co_argcount == 1)
BINARY = ["add", "sub", "mul", "div", "clamp_max", "clamp_min", "maximum", "minimum"]
ROOM = dict.fromkeys(("float32", "int64", "int32", "bool"), {"rtol": 2e-6, "atol": 1e-6}) | {"float64": {"rtol": 1e-12, "atol": 1e-14}}
SHAPES = [(3,), (), (2, 3), (0,), (1, 4)]


def values(dtype="float32"):
    """Within the domain of every function."""
    if dtype.startswith("int"):
        return [R.integers(1, 5, shape).astype(dtype) for shape in SHAPES]
    return [(R.random(shape) * 0.8 + 0.1).astype(dtype) for shape in SHAPES]


def both(torch, arrays):
    return [ampc.tensor(a, device=DEVICE) for a in arrays], [torch.tensor(a) for a in arrays]


def agree(mine, theirs):
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs):
        assert str(a.dtype).split(".")[1] == str(b.dtype).split(".")[1] and tuple(a.shape) == tuple(b.shape)
        np.testing.assert_allclose(a.detach().cpu().numpy(), b.detach().numpy(), **ROOM[str(b.dtype).split(".")[1]])


def outcome(f, *args, **kwargs):
    """The results, or the kind of error."""
    try:
        return f(*args, **kwargs)
    except (RuntimeError, TypeError) as error:
        return TypeError if isinstance(error, TypeError) else RuntimeError


def compare(torch, name, arrays, *others, **more):
    """Both ways; ``others`` and the lists are arrays where they are lists of arrays."""
    mine, theirs = both(torch, arrays)
    pairs = [both(torch, o) if isinstance(o, list) and isinstance(o[0], (np.ndarray, np.generic)) else (o, o) for o in others]
    a = outcome(getattr(ampc, name), mine, *(p[0] for p in pairs), **more)
    b = outcome(getattr(torch, name), theirs, *(p[1] for p in pairs), **more)
    if isinstance(a, type) or isinstance(b, type):
        assert a is b
        return
    agree(a, b)
    assert (a is mine) == name.endswith("_")
    if name.endswith("_"):
        agree(mine, theirs)


def test_every_name_of_torch_is_there():
    torch = pytest.importorskip("torch")
    names = {name for name in dir(torch) if name.startswith("_foreach_")}
    assert names <= {name for name in vars(_foreach) if name.startswith("_foreach_")}
    for name in names:
        assert getattr(ampc, name).__doc__ and getattr(ampc, name).__name__ == name


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("name", UNARY)
def test_one_list(name, dtype):
    if "frac" in name and dtype == "int64":
        pytest.skip("ampc.frac takes integers, too; torch's does not")
    compare(pytest.importorskip("torch"), name, values(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("end", ["", "_"])
@pytest.mark.parametrize("name", [*BINARY, "pow"])
def test_two_lists_and_numbers(name, end, dtype):
    torch, name = pytest.importorskip("torch"), f"_foreach_{name}{end}"
    compare(torch, name, values(dtype), values(dtype))
    compare(torch, name, values(dtype), values("float64"))
    for number in (2, 0.5, True):
        compare(torch, name, values(dtype), number)
    compare(torch, name, values(dtype), [1, 2, 3, 1.5, True])


@pytest.mark.parametrize("end", ["", "_"])
@pytest.mark.parametrize("name", ["add", "sub"])
def test_alpha(name, end):
    torch, name = pytest.importorskip("torch"), f"_foreach_{name}{end}"
    compare(torch, name, values(), values(), alpha=2)
    compare(torch, name, values("int64"), values("int64"), alpha=2.5)
    compare(torch, name, values(), 2, alpha=2)


@pytest.mark.parametrize("end", ["", "_"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum"])
def test_a_tensor_for_all(name, end):
    """What torch adds on the CPU counts as a number. On a GPU that would wait for it, so there it is a tensor with a dtype, as what is multiplied is."""
    added = name == "add" and not end and DEVICE != "cpu"
    torch, name = pytest.importorskip("torch"), f"_foreach_{name}{end}"
    for dtype, other in ((a, b) for a in ("float32", "int64") for b in (np.array(2.5), np.array(2), np.array([2.0]))):
        mine, theirs = both(torch, values(dtype))
        (a,), (b,) = both(torch, [other])
        got, want = outcome(getattr(ampc, name), mine, a), outcome(getattr(torch, name), theirs, b)
        if added and not isinstance(want, type):
            want = [t + b for t in theirs]
        if isinstance(want, type):
            assert got is want
        else:
            agree(got, want)


@pytest.mark.parametrize("end", ["", "_"])
def test_three_lists(end):
    torch = pytest.importorskip("torch")
    for name in ("_foreach_addcmul" + end, "_foreach_addcdiv" + end):
        for value in ((), (2,), (0.5,), ([1, 2, 3, 4, 0.5],)):
            compare(torch, name, values(), values(), values(), *value)
        compare(torch, name, values(), values(), values(), value=3)
        compare(torch, name, values(), values(), values(), scalars=[1, 2, 3, 4, 5])
        compare(torch, name, values(), values(), values(), [1, 2])
        compare(torch, name, values(), values()[:2], values())
        for packed in (np.arange(5.0), np.arange(4.0), np.array(1.0)):
            (mine, theirs), (m, t) = both(torch, [packed]), both(torch, values())
            got, want = outcome(getattr(ampc, name), m, m, m, mine[0] if hasattr(mine, "__len__") else mine), outcome(getattr(torch, name), t, t, t, theirs if not isinstance(theirs, list) else theirs[0])
            if isinstance(want, type):
                assert got is want
            else:
                agree(got, want)
    for weight in (values(), 0.25, 0.75, [0.1, 0.2, 0.3, 0.6, 0.9], [0.5]):
        compare(torch, "_foreach_lerp" + end, values(), values(), weight)


def test_norms_and_sums():
    torch = pytest.importorskip("torch")
    arrays = [a for a in values() if a.size]
    for name in ("_foreach_norm", "_foreach_powsum"):
        for order in (2, 1, 3, 0.5):
            compare(torch, name, values(), order)
    for order in (float("inf"), 0, -1):
        compare(torch, "_foreach_norm", arrays, order)
    compare(torch, "_foreach_norm", values(), float("inf"))
    compare(torch, "_foreach_norm", values("int64"))
    compare(torch, "_foreach_max", arrays)
    compare(torch, "_foreach_max", values())
    compare(torch, "_foreach_mm", [a.reshape(2, -1) for a in arrays if a.size % 2 == 0], [a.reshape(-1, 2) for a in arrays if a.size % 2 == 0])
    mine, theirs = both(torch, arrays)
    agree(ampc._foreach_norm(mine, 2, dtype=ampc.float64), torch._foreach_norm(theirs, 2, dtype=torch.float64))


def test_copies_and_zeros():
    torch = pytest.importorskip("torch")
    compare(torch, "_foreach_copy_", values(), values("float64"))
    compare(torch, "_foreach_copy_", values("int64"), values())
    compare(torch, "_foreach_copy_", values(), values()[:3])
    compare(torch, "_foreach_zero_", values())
    compare(torch, "_foreach_clone", values())
    mine, _ = both(torch, values())
    assert all(a is not b and a.data_ptr() != b.data_ptr() for a, b in zip(mine, ampc._foreach_clone(mine)) if a.numel())


def test_powers_of_a_number():
    torch = pytest.importorskip("torch")
    mine, theirs = both(torch, values())
    agree(ampc._foreach_pow(2.0, mine), torch._foreach_pow(2.0, theirs))


@pytest.mark.parametrize("name", [n for n in UNARY if not n.endswith("_")])
def test_gradients_of_one_list(name):
    torch = pytest.importorskip("torch")
    mine, theirs = both(torch, values("float64"))
    for library, tensors in ((ampc, mine), (torch, theirs)):
        for t in tensors:
            t.requires_grad_()
        sum(y.sum() for y in getattr(library, name)(tensors)).backward()
    agree([t.grad for t in mine], [t.grad for t in theirs])


@pytest.mark.parametrize("name", ["add", "mul", "div", "pow", "lerp", "addcdiv", "addcmul", "maximum", "norm", "sub"])
def test_gradients_of_more(name):
    torch = pytest.importorskip("torch")
    n = {"lerp": 3, "addcdiv": 3, "addcmul": 3, "norm": 1}.get(name, 2)
    lists = [both(torch, [a for a in values("float64") if a.size]) for _ in range(n)]
    for library, which in ((ampc, 0), (torch, 1)):
        tensors = [pair[which] for pair in lists]
        for t in (t for column in tensors for t in column):
            t.requires_grad_()
        f = getattr(library, "_foreach_" + name)
        if library is torch and name == "addcdiv":  # whose backward fails for lists
            def f(*lists):
                return [torch.addcdiv(*each) for each in zip(*lists)]
        sum(y.sum() for y in f(*tensors)).backward()
    for mine, theirs in lists:
        agree([t.grad for t in mine], [t.grad for t in theirs])


def test_in_place_is_recorded():
    x = ampc.tensor([1.0, 2.0], device=DEVICE, requires_grad=True)
    y = [x * 2, x * 3]
    ampc._foreach_mul_(y, [2.0, 3.0])
    ampc._foreach_add_(y, [x, x])
    (y[0] + y[1]).sum().backward()
    assert x.grad.tolist() == [15.0, 15.0]
    with pytest.raises(RuntimeError, match="leaf"):
        ampc._foreach_add_([x], 1)


def test_wrong_lists():
    t = ampc.ones(2, device=DEVICE)
    with pytest.raises(RuntimeError, match="at least one tensor"):
        ampc._foreach_sqrt([])
    with pytest.raises(RuntimeError, match="same number of tensors, got 2 and 1"):
        ampc._foreach_add([t, t], [t])
    with pytest.raises(RuntimeError, match="same number of elements as scalar list"):
        ampc._foreach_add([t, t], [1])
    with pytest.raises(TypeError, match="element 1 in argument 0"):
        ampc._foreach_add([t, 1], 1)
    with pytest.raises(TypeError, match="element 0 in argument 1"):
        ampc._foreach_add([t], ["1"])
    with pytest.raises(TypeError, match="`self`"):
        ampc._foreach_add(t, 1)
    with pytest.raises(TypeError):
        ampc._foreach_add([t])
    with pytest.raises(AttributeError):
        ampc._foreach_nothing


WRONG = {"none": lambda T: None, "text": lambda T: "ab", "vector": lambda T: T.ones(2), "generator": lambda T: (t for t in [T.ones(2)]), "dict": lambda T: {},
         "empty": lambda T: [], "one": lambda T: [T.ones(2)], "two": lambda T: [T.ones(2)] * 2, "three": lambda T: [T.ones(2)] * 3, "numbers": lambda T: [1, 2],
         "mixed": lambda T: [T.ones(2), 2], "texts": lambda T: ["a", "b"]}


@pytest.mark.parametrize("second", WRONG)
@pytest.mark.parametrize("first", WRONG)
def test_types_are_looked_at_before_lengths(torch, first, second):
    """Kinds of errors, whatever two arguments a call is given."""
    for name in ("add", "add_", "mul", "maximum", "maximum_", "clamp_min", "pow", "mm", "copy_"):
        def call(T, name=name):
            return outcome(getattr(T, f"_foreach_{name}"), WRONG[first](T), WRONG[second](T))

        mine, theirs = call(ampc), call(torch)
        assert mine is theirs or isinstance(mine, (list, tuple)) and (theirs is None or isinstance(theirs, (list, tuple))), name


def test_a_wrong_order_of_a_norm():
    for order in ([2.0], ampc.ones(2), "2", None):
        with pytest.raises(TypeError, match="ord"):
            ampc._foreach_norm([ampc.ones(2)], order)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_in_place_ties_share_the_gradient(torch, name):
    a, b = [[1.0, 2.0, 3.0], [0.0]], [[1.0, 3.0, 2.0], [-0.0]]
    found = []
    for T in (ampc, torch):
        x, y = ([T.tensor(v, requires_grad=True) for v in values_] for values_ in (a, b))
        written = [t * 2 for t in x]
        getattr(T, f"_foreach_{name}_")(written, [t * 2 for t in y])
        sum((t * t).sum() for t in written).backward()
        found.append([t.grad.tolist() for t in (*x, *y)])
    assert found[0] == found[1]


def test_many_tensors_and_one_list_that_shrinks():
    many = [ampc.ones(4, device=DEVICE) for _ in range(600)]
    assert all(t.tolist() == [3.0] * 4 for t in ampc._foreach_add(many, many, alpha=2))

    class Shrinking(float):
        def __float__(self):
            many.clear()
            return 1.0

    assert len(ampc._foreach_add(many, Shrinking())) == 600


def test_foreach_utils():
    torch = pytest.importorskip("torch")
    from torch.utils import _foreach_utils as theirs

    from ampc.utils import _foreach_utils as mine

    assert set(mine._get_fused_kernels_supported_devices()) <= set(theirs._get_fused_kernels_supported_devices())
    assert set(mine._get_foreach_kernels_supported_devices()) <= set(theirs._get_foreach_kernels_supported_devices())
    for library, utils in ((ampc, mine), (torch, theirs)):
        device = DEVICE if library is ampc else "cpu"
        a, b, c = library.ones(1, device=device), library.ones(2, dtype=library.float64, device=device), library.ones(3, device=device)
        for indices in (False, True):
            groups = utils._group_tensors_by_device_and_dtype([[a, b, c], [None, b, c], []], indices)
            assert {(k[0].type, str(k[1]).split(".")[1]): ([[t if t is None else t.numel() for t in column] for column in v[0]], list(v[1])) for k, v in groups.items()} == {
                (device, "float32"): ([[1, 3], [None, 3], []], [0, 2] if indices else []), (device, "float64"): ([[2], [2], []], [1] if indices else [])}
        assert utils._has_foreach_support([a, None, b], library.device(device))
        assert not utils._has_foreach_support([torch.nn.Parameter(torch.ones(1)) if library is torch else ampc.nn.Parameter(a)], library.device("cpu"))


@pytest.mark.cpu
def test_every_allocation_may_fail():
    """MemoryError, and the list is as it was."""
    tensors = [ampc.ones(3, requires_grad=True) for _ in range(4)]
    for numbers in (2.0, [1.0, 2.0, 3.0, 4.0], tensors):
        ampc._C._fail_alloc(0)
        ampc._foreach_mul(tensors, numbers)
        total = ampc._C._alloc_calls()
        assert total > 0
        for n in range(1, total + 1):
            ampc._C._fail_alloc(n)
            try:
                with pytest.raises(MemoryError):
                    ampc._foreach_mul(tensors, numbers)
            finally:
                ampc._C._fail_alloc(0)
    assert all(t.tolist() == [1.0] * 3 for t in tensors)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int8", "bool"])
def test_small_tensors_are_zeroed_at_once(dtype):
    """As the kernel does it: of views, recorded tensors and counters of writes, too."""
    base = ampc.ones(4, 6, device=DEVICE).to(getattr(ampc, dtype))
    before = base._version
    assert base[:, 1].zero_().tolist() == [0] * 4 and base[1].zero_().tolist() == [0] * 6 and base._version > before
    assert base.float().sum().item() == 15
    x = ampc.ones(3, device=DEVICE, requires_grad=True)
    y = x * 2
    y.zero_()
    y.sum().backward()
    assert x.grad.tolist() == [0.0] * 3
    t = ampc.ones(2, device=DEVICE)
    assert str(t.fill_(-0.0).tolist()) == "[-0.0, -0.0]"
    with pytest.raises(RuntimeError, match="leaf"):
        x.zero_()
