"""utils.flop_counter: counts of forward and backward beside torch's; where it is absent those tests skip."""

import pytest
from references import R
from where import DEVICE

import ampc
from ampc.utils.flop_counter import FlopCounterMode, register_flop_formula

F = "nn.functional."


def found(library, name, arrays, grads, *args, **kwargs):
    """All operations, and by operator, with products of any form as one."""
    f = library
    for part in name.split("."):
        f = getattr(f, part)
    tensors = [library.tensor(a, requires_grad=g, **({"device": DEVICE} if library is ampc else {})) for a, g in zip(arrays, grads)]
    mode = FlopCounterMode if library is ampc else __import__("torch.utils.flop_counter", fromlist=["x"]).FlopCounterMode
    with mode(display=False) as counter:
        y = f(*tensors, *args, **kwargs)
        if y.requires_grad:
            y.sum().backward()
    counts = {str(k): v for k, v in counter.get_flop_counts().get("Global", {}).items()}
    products = sum(counts.pop(k, 0) for k in ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm"))
    assert counter.get_total_flops() == products + sum(counts.values())
    return products, counts


CASES = [("mm", (2, 3), (3, 4)), ("bmm", (5, 2, 3), (5, 3, 4)), ("matmul", (5, 2, 3), (3, 4)), ("matmul", (2, 5, 6, 3), (2, 5, 3, 4)), ("addmm", (2, 4), (2, 3), (3, 4)),
         ("baddbmm", (5, 2, 4), (5, 2, 3), (5, 3, 4)), (F + "linear", (7, 5, 3), (4, 3), (4,)), (F + "linear", (7, 3), (4, 3))]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
@pytest.mark.parametrize("grads", [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 1)])
def test_products(case, grads):
    torch = pytest.importorskip("torch")
    arrays = [R.standard_normal(s) for s in case[1:]]
    grads = [bool(g) for g in grads]
    assert found(ampc, case[0], arrays, grads) == found(torch, case[0], arrays, grads)


@pytest.mark.parametrize("name, x, weight, args", [
    ("conv1d", (2, 4, 9), (6, 4, 3), (None, 2, 1)), ("conv2d", (2, 4, 8, 7), (6, 4, 3, 3), (None, 1, 1)), ("conv3d", (1, 2, 5, 5, 5), (3, 2, 2, 2, 2), ()),
    ("conv2d", (2, 4, 8, 7), (6, 4, 3, 3), (None, 2, 2, 2)), ("conv_transpose2d", (2, 6, 4, 5), (6, 4, 3, 3), (None, 2, 1, 1)),
    ("conv_transpose1d", (2, 4, 6), (4, 4, 2), (None, 1, 1)),
])
@pytest.mark.parametrize("grads", [(False, False), (True, False), (False, True), (True, True)])
def test_convolutions(name, x, weight, args, grads):
    torch = pytest.importorskip("torch")
    arrays = [R.standard_normal(x), R.standard_normal(weight)]
    assert found(ampc, F + name, arrays, grads, *args) == found(torch, F + name, arrays, grads, *args)


def test_a_grouped_convolution_counts_its_groups():
    x, w = ampc.randn(2, 4, 8, 8, device=DEVICE, requires_grad=True), ampc.randn(6, 2, 3, 3, device=DEVICE, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        ampc.nn.functional.conv2d(x, w, padding=1, groups=2).sum().backward()
    one = 2 * 2 * 64 * 6 * 2 * 9
    assert counter.get_flop_counts()["Global"] == {"aten.convolution": one, "aten.convolution_backward": 2 * one}


def test_attention():
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    assert torch
    q, k, v = (2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)
    tensors = [ampc.randn(*s, device=DEVICE, requires_grad=True) for s in (q, k, v)]
    with FlopCounterMode(display=False) as counter:
        out = ampc.nn.functional.scaled_dot_product_attention(*tensors)
    assert counter.get_total_flops() == sdpa_flop_count(q, k, v)
    with FlopCounterMode(display=False) as counter:
        out.sum().backward()
    expected = sdpa_backward_flop_count(q, q, k, v)
    assert counter.get_total_flops() in (expected, expected - sdpa_flop_count(q, k, v) // 2)  # of a composition the scores are kept


class Net:
    @staticmethod
    def of(library):
        nn = library.nn

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(1, 4, 3)
                self.body = nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 8), nn.Sequential(nn.Tanh(), nn.Linear(8, 3)))

            def forward(self, x):
                return self.body(self.conv(x))

        return Model()


def test_modules_and_the_table(capsys):
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode as Theirs

    counts = []
    for library, mode in ((ampc, FlopCounterMode), (torch, Theirs)):
        model = Net.of(library)
        if library is ampc:
            model.to(DEVICE)
        with mode(display=False) as counter:
            model(library.ones(2, 1, 8, 8, **({"device": DEVICE} if library is ampc else {}))).sum().backward()
        counts.append({name: sum(v.values()) for name, v in counter.get_flop_counts().items()})
        if library is ampc:
            table = counter.get_table(depth=3)
    assert counts[0] == counts[1]
    lines = table.splitlines()
    assert lines[0].split() == ["Module", "FLOP", "%", "Total"] and set(lines[1]) == {"-", " "}
    assert lines[2].startswith("Model ") and lines[2].endswith("100.00%") and any(line.startswith("  Model.body.2 ") for line in lines)
    with FlopCounterMode():
        ampc.mm(ampc.ones(10, 100, device=DEVICE), ampc.ones(100, 50, device=DEVICE))
    assert "Global" in capsys.readouterr().out


def test_the_table_is_torchs():
    torch = pytest.importorskip("torch")
    pytest.importorskip("tabulate")
    from torch.utils.flop_counter import FlopCounterMode as Theirs

    tables = []
    for library, mode in ((ampc, FlopCounterMode), (torch, Theirs)):
        with mode(display=False, depth=5) as counter:
            Net.of(library)(library.ones(2, 1, 8, 8))
        tables.append(counter.get_table())
    assert tables[0] == tables[1]


def test_own_formulas_and_nested_counters():
    def tanh_flop(shape, *, out_shape=None, **more):
        assert shape == out_shape == (2, 3)
        return 7

    x = ampc.ones(2, 3, device=DEVICE)
    with FlopCounterMode(display=False, custom_mapping={ampc.tanh: tanh_flop}) as outer:
        with FlopCounterMode(display=False) as inner:
            x.tanh() @ x.mT
        x.tanh()
    assert outer.get_flop_counts()["Global"] == {"aten.tanh": 14, "aten.mm": 24} and inner.get_total_flops() == 24
    register_flop_formula("aten.tanh")(tanh_flop)
    try:
        with FlopCounterMode(display=False) as counter:
            x.tanh()
        assert counter.get_total_flops() == 7
    finally:
        from ampc.utils import flop_counter

        del flop_counter.flop_registry["tanh"]
    with pytest.raises(ValueError, match="expected an operator"):
        register_flop_formula(3)(tanh_flop)


def test_what_is_watched_is_put_back():
    call = ampc.nn.Module._ampc_call
    with pytest.raises(ZeroDivisionError), FlopCounterMode(display=False):
        1 / 0
    assert ampc.nn.Module._ampc_call is call and ampc._C._watcher() is None
    x = ampc.ones(2, 3, device=DEVICE)
    with FlopCounterMode(display=False) as counter, ampc.autocast(DEVICE, ampc.bfloat16):
        ampc.nn.Linear(3, 4, device=DEVICE)(x)
    assert counter.get_total_flops() == 48
