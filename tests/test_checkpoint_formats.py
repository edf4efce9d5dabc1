"""Checkpoints in torch's format, both ways: what ampc writes torch reads with weights_only=True, and ampc, too."""

import io
import os
import pickletools
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections import Counter, OrderedDict, defaultdict

import numpy as np
import pytest

import ampc
from ampc import nn

try:
    import torch
except ImportError:
    torch = None

beside = pytest.mark.skipif(torch is None, reason="asks torch to read the file")
DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]


def to_torch(obj, tmp_path, **how):
    """What torch reads of what ampc wrote: to a path, to a file object, and mapped into memory."""
    path = tmp_path / "ours.pt"
    ampc.save(obj, path, format="torch")
    buffer = io.BytesIO()
    ampc.save(obj, buffer, format="torch")
    assert buffer.getvalue() == path.read_bytes()
    torch.load(path, weights_only=True, mmap=True)
    return torch.load(path, weights_only=True, **how)


def same(got, want):
    """Whether two structures are alike, the tensors of either library."""
    if hasattr(want, "stride"):
        assert str(got.dtype).split(".")[1] == str(want.dtype).split(".")[1] and tuple(got.stride()) == tuple(want.stride())
        assert tuple(got.shape) == tuple(want.shape) and got.storage_offset() == want.storage_offset() and got.requires_grad == want.requires_grad
        assert type(got).__name__ == type(want).__name__
        return np.array_equal(np.array(got.tolist()), np.array(want.tolist()), equal_nan=got.dtype.is_floating_point)
    assert type(got).__name__ == type(want).__name__, (got, want)
    if isinstance(want, dict):
        return list(got) == list(want) and all(same(got[k], want[k]) for k in want)
    if isinstance(want, (list, tuple)):
        return len(got) == len(want) and all(map(same, got, want))
    return got == want or got != got and want != want or str(got).split(".")[-1] == str(want).split(".")[-1] and not isinstance(want, (int, float, str))


def structure():
    base = ampc.arange(24.0).reshape(4, 6)
    deep = [1]
    for _ in range(60):
        deep = [deep, {"more": ()}]
    return {
        "tensors": {d: ampc.tensor([[0, 1, 2], [1, 0, 3]]).to(getattr(ampc, d)) for d in DTYPES},
        "strides": [base, base.t(), base[1:3, ::2], base[:, 5], base.view(-1)[23], base[4:], base.expand(2, 4, 6), ampc.zeros(1, 3).expand(5, 3)],
        "kinds": (ampc.tensor(2.5), ampc.tensor(True), ampc.empty(0), ampc.empty(0, 3, dtype=ampc.int64), ampc.ones(2, requires_grad=True)),
        "parameters": [nn.Parameter(ampc.ones(2)), nn.Parameter(ampc.zeros(2), requires_grad=False), nn.Buffer(ampc.ones(1)).detach()],
        "special": ampc.tensor([float("nan"), float("inf"), -0.0, 1e-40]),
        "plain": [None, True, False, 0, 255, 256, 65535, 65536, -1, 2**31 - 1, 2**31, -2**31, -2**31 - 1, 2**200, -2**63, 1.5, float("inf"), float("nan"), "", "text",
                  "Größe\U0001f600", "\ud800", b"", bytes(range(256)), 1 - 2j, (), (1,), (1, (2, 3)), [], {}, {1: "a", "b": [2], (1, 2): None, False: 0}],
        "more": [{1, 2}, set(), OrderedDict([("z", 1), ("a", ampc.ones(1))]), OrderedDict(), Counter("abca"), ampc.Size([2, 3]), ampc.float16, ampc.bool, ampc.device("cpu"),
                 ampc.device("cuda", 1), ampc.device("cuda")],
        "deep": deep, "": "an empty key",
    }


@beside
def test_torch_reads_every_kind_of_value(tmp_path):
    obj = structure()
    assert same(to_torch(obj, tmp_path), obj)
    assert same(ampc.load(tmp_path / "ours.pt"), obj)


def test_ampc_reads_every_kind_of_value(tmp_path):
    obj = structure()
    ampc.save(obj, tmp_path / "ours.pt", format="torch")
    for how in ({}, {"weights_only": False}):
        assert same(ampc.load(tmp_path / "ours.pt", **how), obj)


@beside
def test_shared_memory_stays_shared(tmp_path):
    base, twice, shared = ampc.arange(1000.0), ampc.ones(3), [1, 2]
    obj = {"a": base, "view": base[10:20], "t": base.view(10, 100).t(), "twice": [twice, twice], "lists": [shared, shared], "alone": ampc.zeros(1000)[990:]}
    for load in (lambda: to_torch(obj, tmp_path), lambda: ampc.load(tmp_path / "ours.pt")):
        got = load()
        assert same(got, obj)
        got["a"][10] = -5
        assert float(got["view"][0]) == float(got["t"][10, 0]) == -5
        assert got["twice"][0] is got["twice"][1] and got["lists"][0] is got["lists"][1]
        assert got["alone"].untyped_storage().nbytes() == 4000
    assert 8000 < os.path.getsize(tmp_path / "ours.pt") < 12000


@beside
def test_memory_seen_in_several_dtypes(tmp_path):
    base = ampc.arange(6.0)
    obj = [base, base.view(ampc.int32)[2:], base.view(ampc.uint8), nn.Parameter(base[1:]), base.view(ampc.bfloat16)]
    for load in (lambda: to_torch(obj, tmp_path), lambda: ampc.load(tmp_path / "ours.pt"), lambda: ampc.load(tmp_path / "ours.pt", weights_only=False)):
        got = load()
        assert same(got, obj)
        got[1][0] = 0x40A00000
        assert float(got[0][2]) == 5 and float(got[3][1]) == 5


def test_two_arrays_on_one_memory_are_saved_whole(tmp_path):
    """Storages that begin at one address, and end at others."""
    a = np.arange(10, dtype=np.float32)
    obj = [ampc.from_numpy(a[:5]), ampc.from_numpy(a), ampc.from_numpy(a)]
    for how in ({}, {"format": "torch"}):
        ampc.save(obj, tmp_path / "f", **how)
        got = ampc.load(tmp_path / "f")
        assert [g.tolist() for g in got] == [o.tolist() for o in obj]
        assert got[1].data_ptr() == got[2].data_ptr() != got[0].data_ptr()


def test_a_tensor_beyond_its_storage_is_refused(tmp_path):
    t = ampc.arange(6.0)
    t.untyped_storage().resize_(8)
    for how in ({}, {"format": "torch"}):
        with pytest.raises(RuntimeError, match="deep.0 reaches beyond its storage"):
            ampc.save({"deep": [t]}, tmp_path / "f", **how)
    assert not os.listdir(tmp_path)


class Odd(dict):
    pass


REFUSED = {
    "a module": (lambda: nn.Linear(1, 1), "state_dict"), "a function": (lambda: len, "builtin_function"), "a NumPy number": (lambda: np.float64(1), "item"),
    "a NumPy array": (lambda: np.zeros(2), "tensor"), "a subclass": (Odd, "test_checkpoint_formats.Odd"), "a default dict": (lambda: defaultdict(list), r"dict\(d\)"),
    "a frozen set": (lambda: frozenset([1]), r"set\(s\)"), "a bytearray": (lambda: bytearray(b"a"), "bytearray"), "an int of 3000 bits": (lambda: 1 << 3000, "bits"),
    "a scaler": (lambda: ampc.GradScaler("cpu"), "GradScaler"), "a dtype that ampc lacks": (lambda: ampc.complex64, "."),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_other_objects_are_refused_by_their_place(kind, tmp_path):
    make, text = REFUSED[kind]
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(TypeError, match=r"epoch\.3\.best") as e:
        ampc.save({"epoch": [0, 1, 2, {"best": make()}]}, tmp_path / "f", format="torch")
    assert re.search(text, str(e.value)), e.value
    with pytest.raises(TypeError, match="the whole|the top"):
        ampc.save(make(), tmp_path / "f", format="torch")
    assert (tmp_path / "f").read_bytes() == b"old" and os.listdir(tmp_path) == ["f"]


def test_no_object_is_asked_how_to_be_pickled(tmp_path):
    class Rogue:
        def __reduce_ex__(self, protocol):
            raise AssertionError("asked")

        __getstate__ = __reduce__ = __reduce_ex__

    with pytest.raises(TypeError, match="the key a.*Rogue|Rogue"):
        ampc.save({"a": {Rogue(): 1}}, tmp_path / "f", format="torch")


def test_endless_and_too_deep_structures_are_refused(tmp_path):
    ring = {"a": []}
    ring["a"].append(ring)
    with pytest.raises(ValueError, match="contains itself at a.0"):
        ampc.save(ring, tmp_path / "f", format="torch")
    deep = []
    for _ in range(120):
        deep = [deep]
    with pytest.raises(ValueError, match="100"):
        ampc.save(deep, tmp_path / "f", format="torch")
    with pytest.raises(ValueError, match="format"):
        ampc.save({}, tmp_path / "f", format="pickle")
    with pytest.raises(ValueError, match="protocol"):
        ampc.save({}, tmp_path / "f", pickle_protocol=4, format="torch")
    assert not os.listdir(tmp_path)


def test_the_file_is_as_torch_lays_it_out(tmp_path):
    obj = {"a": ampc.arange(100), "b": ampc.ones(7, dtype=ampc.int8), "c": ampc.empty(0)}
    ampc.save(obj, tmp_path / "f", format="torch")
    data = (tmp_path / "f").read_bytes()
    with zipfile.ZipFile(tmp_path / "f") as archive:
        assert archive.testzip() is None
        names = [i.filename for i in archive.infolist()]
        assert names[0] == "archive/data.pkl" and {"archive/version", "archive/byteorder", "archive/data/0", "archive/data/1", "archive/data/2"} <= set(names)
        for i in archive.infolist():
            start = i.header_offset + 30 + int.from_bytes(data[i.header_offset + 26:i.header_offset + 28], "little")
            start += int.from_bytes(data[i.header_offset + 28:i.header_offset + 30], "little")
            assert start % 64 == 0 and i.compress_type == 0 and data[start:start + i.file_size] == archive.read(i)
        code = archive.read("archive/data.pkl")
    assert {op.name for op, _, _ in pickletools.genops(code)} <= {"PROTO", "STOP", "GLOBAL", "REDUCE", "MARK", "TUPLE", "EMPTY_TUPLE", "EMPTY_DICT", "SETITEMS", "BINPUT", "BINGET",
                                                                 "BINUNICODE", "BININT1", "BININT2", "BINPERSID", "NEWFALSE"}
    ampc.save(obj, tmp_path / "again", format="torch")
    assert (tmp_path / "again").read_bytes() == data, "the same bytes each time"


@beside
def test_entries_of_gigabytes(tmp_path, monkeypatch):
    """Their sizes stand in a field of their own; here small ones are taken for large."""
    from ampc.serialization import _pt_write

    monkeypatch.setattr(_pt_write, "_LARGE", 16)
    obj = {"a": ampc.arange(100), "b": ampc.ones(1), "text": "long" * 20}
    assert same(to_torch(obj, tmp_path), obj) and same(ampc.load(tmp_path / "ours.pt"), obj)
    data = (tmp_path / "ours.pt").read_bytes()
    at = data.index(bytes(range(0, 1)) + b"\0" * 7 + b"\1" + b"\0" * 7 + b"\2")
    assert at % 64 == 0


def training(lib):
    """A step of Adam and one of SGD on a model with tied weights, a buffer and a scaler."""
    lib.manual_seed(0)
    model = lib.nn.Sequential(OrderedDict(a=lib.nn.Linear(3, 3), norm=lib.nn.BatchNorm1d(3), b=lib.nn.Linear(3, 3)))
    model.b.weight = model.a.weight
    with lib.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(lib.arange(p.numel(), dtype=lib.float32).reshape(p.shape).cos() * (i + 1) / 5)
    adam = lib.optim.AdamW([{"params": [model.a.weight], "lr": 0.1}, {"params": [model.a.bias], "betas": (0.8, 0.9)}], amsgrad=True)
    sgd = lib.optim.SGD([*model.norm.parameters(), model.b.bias], lr=0.1, momentum=0.9)
    sched = lib.optim.lr_scheduler.StepLR(sgd, 2)
    scaler = lib.amp.GradScaler("cpu", init_scale=256.0)
    return model, adam, sgd, sched, scaler


def steps(lib, parts, n):
    model, adam, sgd, sched, scaler = parts
    losses = []
    for i in range(n):
        loss = model(lib.arange(12, dtype=lib.float32).reshape(4, 3).sin() + i).square().mean()
        losses.append(float(loss.detach()))
        adam.zero_grad(), sgd.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(adam), scaler.step(sgd)
        scaler.update(), sched.step()
    return losses


@beside
def test_training_goes_on_in_torch(tmp_path):
    """Models, optimizers, schedules and scalers of ampc, loaded in torch: the next losses are those that ampc computes."""
    ours = training(ampc)
    steps(ampc, ours, 3)
    got = to_torch([part.state_dict() for part in ours], tmp_path)
    theirs = training(torch)
    for part, state in zip(theirs, got):
        part.load_state_dict(state)
    assert got[0]["a.weight"].data_ptr() == got[0]["b.weight"].data_ptr() and type(got[0]) is OrderedDict and got[0]._metadata["norm"] == {"version": 2}
    assert got[4]["scale"] == 256.0
    assert steps(torch, theirs, 4) == pytest.approx(steps(ampc, ours, 4), rel=1e-4)


@beside
def test_training_of_torch_goes_on_here(tmp_path):
    theirs = training(torch)
    steps(torch, theirs, 3)
    torch.save([part.state_dict() for part in theirs], tmp_path / "theirs.pt")
    ours = training(ampc)
    for part, state in zip(ours, ampc.load(tmp_path / "theirs.pt")):
        part.load_state_dict(state)
    assert steps(ampc, ours, 4) == pytest.approx(steps(torch, theirs, 4), rel=1e-4)


KILLED = """
import sys, ampc
big = {"big": [ampc.full((4_000_000,), float(i)) for i in range(3)]}
print("ready", flush=True)
for i in range(1000):
    ampc.save(big, sys.argv[1], format="torch")
"""


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_killed_save_leaves_a_whole_file(tmp_path):
    path = tmp_path / "f.pt"
    ampc.save({"big": [ampc.full((4,), 7.0)]}, path, format="torch")
    for seconds in (0.05, 0.15, 0.3):
        p = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE,
                             env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(ampc.__file__))})
        p.stdout.readline()
        time.sleep(seconds)
        p.send_signal(signal.SIGKILL)
        p.wait()
        p.stdout.close()
        got = ampc.load(path)["big"]
        assert [float(t[0]) for t in got] in ([7.0], [0.0, 1.0, 2.0]) and all(float(t.min()) == float(t.max()) for t in got)
    ampc.save([1], path, format="torch")
    assert os.listdir(tmp_path) == ["f.pt"] and ampc.load(path) == [1]


def test_errors_of_the_system_leave_the_old_file(tmp_path):
    path = tmp_path / "f.pt"
    ampc.save([1], path, format="torch")
    if os.path.exists("/dev/full"):
        with pytest.raises(OSError):
            ampc.save({"a": ampc.zeros(100_000)}, "/dev/full", format="torch")
    with pytest.raises(FileNotFoundError):
        ampc.save([1], tmp_path / "none" / "f", format="torch")
    ampc._C._fail_alloc(1, True)
    try:
        with pytest.raises(MemoryError):
            ampc.save([ampc.zeros(10)], path, format="torch")
    finally:
        ampc._C._fail_alloc(0)
    assert ampc.load(path) == [1] and os.listdir(tmp_path) == ["f.pt"]


@beside
def test_random_structures(tmp_path):
    rng = np.random.default_rng(1)

    def tensor():
        d = getattr(ampc, DTYPES[rng.integers(len(DTYPES))])
        t = ampc.from_numpy(rng.integers(0, 2, size=tuple(rng.integers(0, 4, size=rng.integers(4)).tolist()))).to(d)
        return t.permute(*rng.permutation(t.ndim).tolist()) if t.ndim and rng.integers(2) else t

    def value(depth):
        kind = rng.integers(9 if depth < 4 else 5)
        n = int(rng.integers(4))
        if kind == 0:
            made.append(tensor())
            return made[-1]
        if kind == 1 and made:
            t = made[rng.integers(len(made))]
            return t if rng.integers(2) or not t.numel() else t.reshape(-1)[1:] if t.is_contiguous() else t.t() if t.ndim == 2 else t
        if kind in (1, 2):
            return int(rng.integers(-2**62, 2**62)) >> int(rng.integers(62))
        if kind == 3:
            return float(rng.standard_normal())
        if kind == 4:
            return "".join(chr(rng.integers(32, 50000)) for _ in range(n))
        if kind == 5:
            return [value(depth + 1) for _ in range(n)]
        if kind == 6:
            return tuple(value(depth + 1) for _ in range(n))
        return (dict if kind == 7 else OrderedDict)((str(value(9)), value(depth + 1)) for _ in range(n))

    for _ in range(int(os.environ.get("AMPC_EXAMPLES", "100"))):
        made = []
        obj = [value(0) for _ in range(4)]
        got = to_torch(obj, tmp_path)
        assert same(got, obj) and same(ampc.load(tmp_path / "ours.pt"), obj)
        torch.save(got, tmp_path / "theirs.pt")
        assert same(ampc.load(tmp_path / "theirs.pt"), obj)


@beside
def test_a_compiled_models_state_is_told_how_to_load(tmp_path):
    """A key begins with _orig_mod there. Counts of batches, which may be missing, stand among the unexpected keys."""
    def make(lib):
        return lib.nn.Sequential(lib.nn.Linear(2, 3), lib.nn.BatchNorm1d(3))

    torch.save(torch.compile(make(torch)).state_dict(), tmp_path / "f")
    state, model = ampc.load(tmp_path / "f"), make(ampc)
    with pytest.raises(RuntimeError, match=r"begins with '_orig_mod\.', .* torch.compile saves it: \{k\[10:\]: v for k, v in state.items\(\)\}"):
        model.load_state_dict(state)
    model.load_state_dict({k[10:]: v for k, v in state.items()})
    with pytest.raises(RuntimeError) as told:  # one of its keys is no key of the model
        model.load_state_dict({**state, "_orig_mod.2.weight": ampc.ones(1), "3.bias": ampc.ones(1)})
    assert "begins with" not in str(told.value)
