"""Tensors of the device 'meta': a shape and a dtype without values, beside torch where it is installed."""

import io
import os
import subprocess
import sys

import numpy as np
import pytest

import ampc
from ampc import nn

try:
    import torch
except ImportError:
    torch = None

beside = pytest.mark.skipif(torch is None, reason="compares with torch")
m = "lib.zeros(2, 3, device='meta')"
CODE = f"""{m} | {m}.half() | {m}.device.type, {m}.is_meta, {m}.is_cuda, {m}.is_cpu, {m}.get_device() | lib.zeros(2).is_meta | {m} + 1 | {m} @ {m}.T | {m} + lib.tensor(1.)
{m} + lib.zeros(2, 3) | {m}.cpu() | {m}[0, 0].item() | {m}.tolist() | {m}.numpy() | {m}.nonzero() | {m}[{m} > 0] | lib.ones(2, 3).to('meta') | lib.ones(2, 3).copy_({m})
{m}.copy_(lib.ones(2, 3)) | {m}.fill_(3) | {m}[0] | {m}.data_ptr() | {m}.untyped_storage().nbytes() | {m}.untyped_storage().data_ptr() | {m}.untyped_storage().device.type
lib.empty_like({m}, device='cpu') * 0 | lib.empty_like({m}) | lib.randn(3, device='meta') | lib.tensor([1, 2], device='meta') | lib.arange(5, device='meta') | lib.linspace(0, 1, 3, device='meta')
lib.nn.Linear(3, 4, device='meta')({m}) | lib.nn.Linear(3, 4, device='meta').weight | lib.nn.Linear(3, 4, device='meta').to_empty(device='cpu').weight.shape
lib.nn.Linear(3, 4).to('meta').weight | lib.nn.Linear(3, 4, device='meta').to('cpu') | lib.nn.functional.conv2d(lib.zeros(1, 2, 8, 8, device='meta'), lib.zeros(3, 2, 3, 3, device='meta'))
{m}.sum(0) | {m}.argmax() | {m}.clone() | {m}.expand(4, 2, 3) | lib.cat([{m}, {m}]) | {m}.view(6) | {m} == {m} | bool({m}[0, 0]) | float({m}[0, 0]) | {m}.T.stride() | {m}.view(lib.int32)
lib.topk(lib.zeros(5, device='meta'), 2)[0] | lib.zeros(2, device='meta').sort()[1] | lib.nn.LSTM(3, 4, device='meta')(lib.zeros(2, 1, 3, device='meta'))[0] | lib.softmax({m}, -1)
lib.equal({m}, {m}) | lib.unique({m}) | {m}.cumsum(0) | lib.nn.functional.scaled_dot_product_attention(*[lib.zeros(1, 2, 3, 4, device='meta')] * 3) | lib.nn.functional.dropout({m})
lib.nn.BatchNorm2d(2, device='meta')(lib.zeros(1, 2, 3, 3, device='meta')) | lib.nn.functional.interpolate(lib.zeros(1, 2, 3, 3, device='meta'), scale_factor=2)
lib.nn.Embedding(5, 3, device='meta')(lib.zeros(2, dtype=lib.int64, device='meta')) | lib.where({m} > 0, 1., 2.) | {m}[lib.zeros(2, dtype=lib.int64, device='meta')]
lib.nn.functional.cross_entropy({m}, lib.zeros(2, dtype=lib.int64, device='meta')) | lib.einsum('ij,kj', {m}, {m}) | lib.zeros(3, device='meta').set_({m}.untyped_storage())
lib.get_default_device().type | lib.nn.init.normal_(lib.nn.Linear(3, 3, device='meta').weight) | {m}.type()
lib.nn.init.trunc_normal_({m}) | lib.nn.utils.get_total_norm([{m}]) | lib.nn.utils.get_total_norm([{m}], 1.0) | clipped(lib) | saved(lib, {m}) | saved(lib, {m}.half().T)
saved(lib, lib.nn.Parameter({m})) | saved(lib, lib.nn.Linear(3, 4, device='meta').state_dict())['weight'] | __import__('pickle').loads(__import__('pickle').dumps({m}.T)) | {m}.resize_(3)"""


def clipped(lib):
    p = lib.nn.Parameter(lib.zeros(3, device="meta"))
    p.grad = lib.zeros(3, device="meta")
    return lib.nn.utils.clip_grad_norm_([p], 1.0)


def saved(lib, value, **format):
    file = io.BytesIO()
    lib.save(value, file, **format)
    file.seek(0)
    return lib.load(file, map_location="cpu")


def seen(value):
    if hasattr(value, "stride"):
        return [str(value.dtype).split(".")[1], list(value.shape), list(value.stride()), value.device.type, value.requires_grad]
    return type(value).__name__ if "Linear" in type(value).__name__ else [seen(v) for v in value] if isinstance(value, (tuple, list)) else value


@beside
@pytest.mark.parametrize("code", [c.strip() for line in CODE.split("\n") for c in line.split(" | ")])
def test_agrees_with_torch(code):
    def asked(lib):
        try:
            return seen(eval(code, {**globals(), "lib": lib}))
        except (RuntimeError, TypeError) as error:
            return "an error" if lib is ampc or not isinstance(error, TypeError) or "numpy" in code else repr(error)

    got, want = asked(ampc), asked(torch)
    assert got == want or isinstance(want, str) and want.replace("torch.", "ampc.") == got


def test_what_needs_values_says_so():
    t = ampc.zeros(2, 3, device="meta")
    for call in (t.cpu, t.nonzero, t.tolist, t[0, 0].item, lambda: ampc.nn.utils.clip_grad_norm_([grad_of(t)], 1.0, error_if_nonfinite=True)):
        with pytest.raises(NotImplementedError, match="'meta' have no values"):
            call()
    with pytest.raises(BufferError, match="meta"):
        t.__dlpack__()
    with pytest.raises(BufferError, match="meta"):
        memoryview(t)
    assert repr(t) == "tensor(..., device='meta', size=(2, 3))" and "meta" in t._repr_html_()
    assert "Parameter" in repr(nn.Linear(1, 1, device="meta").weight)


def grad_of(t):
    p = nn.Parameter(t)
    p.grad = t.clone()
    return p


def test_it_takes_no_memory():
    before = ampc._C._memory()["current"]
    big = ampc.zeros(2**20, 2**20, device="meta")
    out = (big @ big.T).relu().half()
    assert out.shape == (2**20, 2**20) and out.untyped_storage().nbytes() == 2**41 and ampc._C._memory()["current"] - before < 10_000


CHOSEN = [f"{f}({of})" for f in ("lib.tensor", "lib.as_tensor", "lib.asarray") for of in ("x", "n", "[1.0]", "memoryview(n)", "x, dtype=lib.float64", "x, device='cpu'")]
CHOSEN += ["lib.asarray(x, copy=True)", "lib.asarray(x, copy=False)", "lib.asarray(n, copy=False)", "lib.asarray(x.untyped_storage(), dtype=lib.float32)",
           "lib.from_numpy(n)", "lib.from_dlpack(x)", "lib.as_tensor(lib.ones(2, device='meta'))"]


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
@pytest.mark.parametrize("where", ["meta", "cpu"])
@pytest.mark.parametrize("made", CHOSEN)
def test_what_is_made_of_another_tensor_goes_to_the_chosen_device(torch, made, where):
    seen = []
    for lib in (ampc, torch):
        names = {"lib": lib, "n": np.ones(2, dtype=np.float32), "x": lib.ones(2, device="cpu")}
        before = lib.get_default_device()
        try:
            with lib.device(where):
                inside = outcome(made, names)
            lib.set_default_device(where)
            seen.append((inside, outcome(made, names)))
        finally:
            lib.set_default_device(None if before.type == "cpu" else before)
    assert seen[0] == seen[1]


def outcome(made, names):
    """Where the tensor lies, and whether it is x itself; or the error's type."""
    try:
        t = eval(made, dict(names))
        return t.device.type, t.dtype.itemsize, t is names["x"]
    except Exception as e:  # noqa: BLE001
        return type(e).__name__


def test_a_model_is_made_without_values_and_filled():
    """As transformers and accelerate load pretrained weights."""
    saved = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with ampc.device("meta"):
        assert ampc.get_default_device() == ampc.device("meta") == ampc.tensor([]).device
        one, two = (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)) for _ in range(2))
        assert ampc.zeros(2, device="cpu").device.type == "cpu" and ampc.from_numpy(np.zeros(2)).device.type == "cpu"
    assert ampc.zeros(1).device.type == "cpu" and all(t.is_meta for t in one.state_dict().values())
    one.load_state_dict(saved.state_dict(), assign=True)
    two.to_empty(device="cpu").load_state_dict(saved.state_dict())
    x = ampc.arange(6.0).view(2, 3)
    for model in (one, two):
        assert ampc.equal(model.eval()(x), saved.eval()(x)) and all(p.requires_grad for p in model.parameters())


def test_shapes_of_a_whole_training_step():
    with ampc.device("meta"):
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
        optimizer = ampc.optim.AdamW(model.parameters())
        loss = nn.functional.cross_entropy(model(ampc.zeros(2, 1, 8, 8)), ampc.zeros(2, dtype=ampc.int64))
    loss.backward()
    optimizer.step()
    assert loss.is_meta and all(p.grad.is_meta and p.grad.shape == p.shape for p in model.parameters())


PROGRAM = """
import ampc, ampc as lib
from ampc import nn
t = ampc.zeros(4, 4, device="meta")
for row in ampc._C.op_table():
    f = getattr(ampc._ops, row["python"], None)
    for args in ((t,), (t, t), (t, t, t), (t, 1), (t, 0, 1), ([t, t],)):
        try:
            f(*args)
        except (RuntimeError, TypeError, ValueError, IndexError, ArithmeticError):
            pass
print("survived")
"""


def test_no_operator_follows_the_address():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(ampc.__file__))})
    assert done.stdout == "survived\n", done.stderr[-2000:]


def test_saved_without_values():
    """Of a tensor there are its shape, its strides and its dtype, in either format; a tensor that occurs twice is one again."""
    t, p = ampc.zeros(2, 3, device="meta").T, nn.Parameter(ampc.zeros(4, device="meta", dtype=ampc.float16))
    back = saved(ampc, [t, t, p, ampc.ones(2)])
    assert back[0] is back[1] and back[0].stride() == (1, 3) and type(back[2]) is nn.Parameter and back[2].requires_grad
    assert seen(back[2]) == seen(p) and back[3].tolist() == [1, 1]
    assert [seen(v) for v in saved(ampc, [t, p], format="torch")] == [seen(t), seen(p)]
    model, file = nn.Sequential(nn.Linear(3, 4, device="meta"), nn.Linear(4, 2)), io.BytesIO()
    ampc.save(model, file)
    file.seek(0)
    again = ampc.load(file, weights_only=False)
    assert again[0].weight.is_meta and again[1].weight.tolist() == model[1].weight.tolist()


@beside
def test_torch_reads_tensors_without_values():
    file = io.BytesIO()
    ampc.save(nn.Linear(3, 4, device="meta").half().state_dict(), file, format="torch")
    file.seek(0)
    assert seen(torch.load(file)["weight"]) == ["float16", [4, 3], [3, 1], "meta", False]
    file = io.BytesIO()
    torch.save(torch.zeros(2, 3, device="meta").T, file)
    file.seek(0)
    assert seen(ampc.load(file)) == ["float32", [3, 2], [1, 3], "meta", False]


@pytest.mark.parametrize("change", [{"shape": [2**40, 2**40]}, {"dtype": "x"}, {"shape": [-2]}, {"shape": ["a"]}, {"shape": [2] * 70, "stride": [1] * 70}, {"dtype": []},
                                    {"stride": [2**63]}, {"stride": [1, 1]}, {"dtype": "int64", "grad": True}, {"shape": None}])
def test_damaged_notes_of_tensors_without_values(change):
    from ampc.serialization._tensors import Library, Mapper

    good = {"#": "tensor", "device": "meta", "dtype": "float32", "shape": [2], "stride": [1]}
    assert Library({}, Mapper(None)).get(dict(good)).is_meta
    with pytest.raises((RuntimeError, TypeError, ValueError, KeyError, OverflowError)):
        Library({}, Mapper(None)).get({**good, **change})
