"""Saving and loading: structures, sharing, torch's files, damaged and hostile ones, and being killed while saving."""

import collections
import contextlib
import io
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

import numpy as np
import pytest
from references import DRAWN

import ampc
from ampc import nn

DTYPES = [ampc.float64, ampc.float32, ampc.float16, ampc.bfloat16, ampc.int64, ampc.int32, ampc.int16, ampc.int8, ampc.uint8, ampc.bool]


def there_and_back(obj, tmp_path, **how):
    ampc.save(obj, tmp_path / "file.pt")
    file = io.BytesIO()
    ampc.save(obj, file)
    file.seek(0)
    assert file.getvalue() == (tmp_path / "file.pt").read_bytes()
    return ampc.load(tmp_path / "file.pt", **how), ampc.load(file, **how)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(dtype, tmp_path):
    whole = ampc.arange(24).view(2, 3, 4).to(dtype)
    if dtype.is_floating_point:
        whole[0, 0] = ampc.tensor([float("nan"), float("inf"), -0.0, 1e-7]).to(dtype)
    tensors = {"whole": whole, "number": whole[1, 2, 3], "empty": whole[:0], "part": whole[1].clone()[:, ::2], "turned": whole.clone().transpose(0, 2)}
    for got in there_and_back(tensors, tmp_path):
        assert list(got) == list(tensors)
        for name, t in tensors.items():
            assert got[name].dtype is dtype and got[name].shape == t.shape
            assert got[name].contiguous().view(ampc.uint8).tolist() == t.contiguous().view(ampc.uint8).tolist() if t.dim() else got[name].equal(t)
    assert ampc.load(tmp_path / "file.pt")["turned"].stride() == tensors["turned"].stride()


def test_structures(tmp_path):
    ordered = collections.OrderedDict([("b", 1), ("a", ampc.ones(2))])
    ordered._metadata = {"version": 2}
    obj = {
        "plain": [1, -(10**30), 0.1, 1e-320, "ü\n\0", True, None, b"\x00\xff", 2 + 3j], 5: (1, (2,), []), (1, 2): {"#": "not ours"}, None: {3, 4},
        "odd": [float("inf"), float("-inf"), frozenset({1})], "ordered": ordered, "default": collections.defaultdict(list, {1: [2]}), "count": collections.Counter("aab"),
        "types": [ampc.bfloat16, ampc.device("cuda:1"), ampc.Size([2, 3])], "numpy": [np.float32(0.1), np.arange(6, dtype=np.int16).reshape(2, 3), np.bool_(True)],
        "parameter": nn.Parameter(ampc.ones(2)), "frozen": nn.Parameter(ampc.ones(2), requires_grad=False), "leaf": ampc.ones(2, requires_grad=True),
    }
    for got in there_and_back(obj, tmp_path):
        assert list(got) == list(obj) and got["plain"] == obj["plain"] and got[5] == obj[5] and got[1, 2] == obj[1, 2] and got[None] == {3, 4}
        assert got["odd"] == obj["odd"] and got["default"] == obj["default"] and got["default"]["new"] == [] and got["count"]["a"] == 2 and got["count"]["none"] == 0
        assert type(got["ordered"]) is collections.OrderedDict and got["ordered"]._metadata == {"version": 2} and list(got["ordered"]) == ["b", "a"]
        assert got["types"] == obj["types"] and type(got["types"][2]) is ampc.Size
        assert got["numpy"][0] == np.float32(0.1) and type(got["numpy"][0]) is np.float32 and np.array_equal(got["numpy"][1], obj["numpy"][1]) and got["numpy"][1].dtype == np.int16
        assert type(got["parameter"]) is nn.Parameter and got["parameter"].requires_grad and not got["frozen"].requires_grad
        assert type(got["leaf"]) is ampc.Tensor and got["leaf"].requires_grad and got["leaf"].is_leaf
    assert all(np.isnan(got[0]) for got in there_and_back([float("nan")], tmp_path))


def test_shared_memory_is_shared_again_and_saved_once(tmp_path):
    base = ampc.arange(1000.0)
    obj = {"a": base, "again": base, "view": base[10:20], "matrix": base.view(10, 100).t(), "few": ampc.zeros(1000)[990:993], "none": base[500:500]}
    for got in there_and_back(obj, tmp_path):
        for name, t in obj.items():
            assert ampc.equal(got[name], t)
        got["a"][10] = -5
        assert float(got["view"][0]) == float(got["again"][10]) == float(got["matrix"][10, 0]) == -5 and got["again"] is got["a"]
        assert len({got[name]._storage_ptr() for name in ("a", "view", "matrix", "none")}) == 1
        assert got["few"].storage_offset() == 990 and got["few"]._storage_bytes() == 4000  # as torch has it
    assert 8000 < os.path.getsize(tmp_path / "file.pt") < 9500
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4))
    model[1].bias = model[0].bias
    state = there_and_back(model.state_dict(), tmp_path)[0]
    assert state["0.bias"].data_ptr() == state["1.bias"].data_ptr() and not any(v.requires_grad for v in state.values())


def test_the_file_is_a_safetensors_file(tmp_path):
    from safetensors.numpy import load_file, save_file

    ampc.save({"model": nn.Linear(3, 2).state_dict(), "step": 5}, tmp_path / "ours")
    assert set(load_file(tmp_path / "ours")) == {"model.weight", "model.bias"}
    save_file({"x": np.arange(6, dtype=np.float16).reshape(2, 3)}, tmp_path / "theirs")
    got = ampc.load(tmp_path / "theirs")
    assert list(got) == ["x"] and got["x"].dtype is ampc.float16 and got["x"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_headers_of_any_length(tmp_path):
    """Whose first bytes may be those of a pickle."""
    seen = set()
    for n in range(1, 1200, 7):
        ampc.save({"x": ampc.ones(1), "y": "y" * n}, tmp_path / "f")
        seen.add((tmp_path / "f").read_bytes()[:2])
        assert ampc.load(tmp_path / "f")["y"] == "y" * n
    assert {b"\x80\x02", b"\x80\x03", b"\x80\x04"} <= seen
    ampc.save({"u": "." * 100 + "ustar" * 40}, tmp_path / "f")
    assert ampc.load(tmp_path / "f")["u"].endswith("ustar")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.note = nn.Linear(2, 3), {"deep": [1, 2]}

    def forward(self, x):
        return self.layer(x)


def test_whole_modules_need_trust(tmp_path):
    net = Net()
    ampc.save(net, tmp_path / "net")
    with pytest.raises(pickle.UnpicklingError, match=r"Net, which only unpickling.*weights_only=False.*state_dict"):
        ampc.load(tmp_path / "net")
    got = ampc.load(tmp_path / "net", weights_only=False)
    assert type(got) is Net and got.note == net.note and ampc.equal(got.layer.weight, net.layer.weight) and isinstance(got.layer.weight, nn.Parameter)


def make_training(seed):
    ampc.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
    optimizer = ampc.optim.AdamW([{"params": model[0].parameters(), "lr": 1e-3}, {"params": [*model[1].parameters(), *model[4].parameters()], "lr": 3e-3}])
    schedule = ampc.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[1e-2, 2e-2], total_steps=40)
    return model, optimizer, schedule, ampc.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=3)


def train(parts, steps):
    model, optimizer, schedule, scaler = parts
    losses = []
    for _ in range(steps):
        x = ampc.randn(32, 8)
        with ampc.autocast("cpu", dtype=ampc.float16):
            loss = nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        losses.append(loss.item())
    return losses


NAMES = ["model", "optimizer", "schedule", "scaler"]


def test_resuming_goes_on_bit_for_bit(tmp_path):
    parts = make_training(3)
    train(parts, 7)
    ampc.save({"rng": ampc.get_rng_state(), **{n: p.state_dict() for n, p in zip(NAMES, parts)}}, tmp_path / "checkpoint.pt")
    want, state = train(parts, 12), parts[0].state_dict()
    other = make_training(4)
    saved = ampc.load(tmp_path / "checkpoint.pt")
    for name, part in zip(NAMES, other):
        part.load_state_dict(saved[name])
    ampc.set_rng_state(saved["rng"])
    assert train(other, 12) == want and parts[3].get_scale() == other[3].get_scale() and parts[2].get_last_lr() == other[2].get_last_lr()
    for name, value in other[0].state_dict().items():
        assert ampc.equal(value, state[name]), name


# -- where tensors go --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [None, "cpu", ampc.device("cpu"), {"cpu": "cpu"}, lambda t, name: t, lambda t, name: None])
def test_map_location(where, tmp_path):
    got = there_and_back([ampc.arange(3)], tmp_path, map_location=where)[0]
    assert got[0].tolist() == [0, 1, 2] and got[0].device.type == "cpu"


@pytest.mark.skipif(ampc.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("format", ["ampc", "torch", "pickle"])
@pytest.mark.parametrize("where", ["cuda", "cuda:1", ampc.device("cuda"), {"cpu": "cuda"}], ids=str)
def test_a_file_is_not_damaged_where_there_is_no_gpu(where, format, tmp_path):
    """A RuntimeError as torch's, which asks for the CPU."""
    if format == "pickle":
        ampc.save(nn.Linear(2, 2), tmp_path / "f")
    else:
        ampc.save({"a": ampc.ones(2)}, tmp_path / "f", format=format)
    with pytest.raises(RuntimeError, match="deserialize .* CUDA device.*is_available.* is False.*map_location=.cpu") as told:
        ampc.load(tmp_path / "f", map_location=where, weights_only=format != "pickle")
    assert type(told.value) is RuntimeError and "damaged" not in str(told.value)


@pytest.mark.skipif(ampc.cuda.is_available(), reason="there is a GPU")
def test_load_without_a_gpu_as_torch(torch, tmp_path):
    torch.save({"a": torch.ones(2)}, tmp_path / "f")
    for T in (torch, ampc):
        with pytest.raises(RuntimeError, match="deserialize .* CUDA device") as told:
            T.load(tmp_path / "f", map_location="cuda")
        assert type(told.value) is RuntimeError


# -- torch's files -------------------------------------------------------------------------------------------------


def test_reads_torchs_state_dicts(torch, tmp_path):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.LSTM(4, 5)).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    base = torch.arange(20.0)
    obj = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7, "best": float("inf"), "big": 2**70, "name": "ü", "raw": b"\x00\xff",
           "schedule": torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 3, 9]).state_dict(), "size": torch.Size([2, 3]), "device": torch.device("cpu"), "dtype": torch.float16,
           "tensors": [base, base[2:8:2], base.view(4, 5).t(), torch.tensor(True), torch.empty(0, 3), torch.tensor(-5, dtype=torch.int8)], "parameter": torch.nn.Parameter(torch.ones(2)),
           "leaf": torch.ones(2, requires_grad=True), "set": {1, 2}, "tuple": (1, (2, 3, 4, 5)), "default": collections.OrderedDict(a=1)}
    torch.save(obj, tmp_path / "theirs.pt")
    for trust in (None, False):
        got = ampc.load(tmp_path / "theirs.pt", weights_only=trust)
        assert list(got) == list(obj) and type(got["model"]) is collections.OrderedDict
        assert [got[k] for k in ("epoch", "best", "big", "name", "raw", "set", "tuple", "default")] == [obj[k] for k in ("epoch", "best", "big", "name", "raw", "set", "tuple", "default")]
        for name, value in obj["model"].items():
            mine = got["model"][name]
            assert mine.shape == tuple(value.shape) and mine.dtype.name == str(value.dtype)[6:] and np.array_equal(mine.float().numpy(), value.float().numpy())
        for mine, value in zip(got["tensors"], obj["tensors"]):
            assert np.array_equal(mine.numpy(), value.numpy()) and mine.stride() == value.stride() and mine.dtype.name == str(value.dtype)[6:]
        got["tensors"][0][2] = -1
        assert float(got["tensors"][1][0]) == -1
        assert type(got["parameter"]) is nn.Parameter and got["leaf"].requires_grad and got["size"] == ampc.Size([2, 3]) and got["dtype"] is ampc.float16
        assert got["optimizer"]["param_groups"][0]["lr"] == 1e-3 and got["schedule"]["milestones"] == collections.Counter({3: 2, 9: 1})
    mine = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.LSTM(4, 5)).to(ampc.bfloat16)
    mine.load_state_dict(got["model"])


KINDS = [("complex", "torch.ComplexFloatStorage", lambda t: t.zeros(2, dtype=t.complex64)), ("float8", "_rebuild_", lambda t: t.zeros(2).to(t.float8_e4m3fn)),
         ("unsigned", "_rebuild_", lambda t: t.zeros(2, dtype=t.uint16)), ("sparse", r"torch\.", lambda t: t.eye(2).to_sparse())]


@pytest.mark.parametrize("trust", [None, False])
@pytest.mark.parametrize(("text", "make"), [k[1:] for k in KINDS], ids=[k[0] for k in KINDS])
def test_tensors_of_a_kind_that_ampc_has_not(torch, text, make, trust, tmp_path):
    """Trust would not help, so the message does not ask for it."""
    torch.save({"x": make(torch)}, tmp_path / "theirs.pt")
    with pytest.raises(pickle.UnpicklingError, match=text + ".*does not support.*Convert it with torch") as e:
        ampc.load(tmp_path / "theirs.pt", weights_only=trust)
    assert "weights_only" not in str(e.value)


def test_a_whole_module_of_torchs_is_named(torch, tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "theirs.pt")
    with pytest.raises(pickle.UnpicklingError, match=r"an object of class torch\.nn\.modules\.linear\.Linear, which only unpickling"):
        ampc.load(tmp_path / "theirs.pt")
    assert type(ampc.load(tmp_path / "theirs.pt", weights_only=False)) is nn.Linear


def test_what_is_cut_off_or_read_to_its_end_is_told(tmp_path):
    ampc.save({"x": ampc.ones(3)}, tmp_path / "ours")
    data = (tmp_path / "ours").read_bytes()
    with pytest.raises(RuntimeError, match="ends within its header, so it was cut off"):
        ampc.load(io.BytesIO(data[:50]))
    file = io.BytesIO(data)
    file.read()
    with pytest.raises(EOFError, match=r"load: the file is empty, or was read to its end before.*seek\(0\)"):
        ampc.load(file)


@pytest.mark.parametrize("data", [b"", b"<html>not found</html>", b"P", bytes(100), b"version https://git-lfs.github.com/spec/v1\n"])
@pytest.mark.parametrize("weights_only", [True, False])
def test_what_is_no_file_of_tensors_has_torchs_exception(tmp_path, data, weights_only):
    (tmp_path / "f").write_bytes(data)
    for source in (tmp_path / "f", io.BytesIO(data)):
        with pytest.raises(pickle.UnpicklingError if data else EOFError) as caught:
            ampc.load(source, weights_only=weights_only)
        assert isinstance(caught.value, RuntimeError), "and that of all damaged files"


def archive(path, code, storages=None, **more):
    with zipfile.ZipFile(path, "w", more.get("compression", zipfile.ZIP_STORED)) as z:
        z.writestr("archive/data.pkl", code)
        z.writestr("archive/byteorder", "little")
        for key, data in (storages or {}).items():
            z.writestr(f"archive/data/{key}", data)
    return path


class Evil:
    def __init__(self, *what):
        self.what = what

    def __reduce__(self):
        return self.what


def tensor_code(numel=4, offset=0, size=(4,), stride=(1,), kind="FloatStorage"):
    """The pickle of one tensor, as torch writes it."""
    def text(s):
        return b"X" + len(s).to_bytes(4, "little") + s.encode()

    def numbers(values):
        return b"(" + b"".join(b"J" + v.to_bytes(4, "little", signed=True) for v in values) + b"t"

    storage = b"(" + text("storage") + b"ctorch\n" + kind.encode() + b"\n" + text("0") + text("cpu") + b"J" + numel.to_bytes(4, "little", signed=True) + b"tQ"
    return (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"J" + offset.to_bytes(4, "little", signed=True) + numbers(size) + numbers(stride)
            + b"\x89ccollections\nOrderedDict\n)Rt" + b"R.")


HOSTILE = [
    ("runs a command", lambda: pickle.dumps(Evil(os.system, ("touch owned",)), 2), None, pickle.UnpicklingError, "made by posix.system"),
    ("runs code", lambda: pickle.dumps(Evil(eval, ("open('owned', 'w')",)), 2), None, pickle.UnpicklingError, "made by __builtin__.eval"),
    ("by a newer protocol", lambda: pickle.dumps(Evil(exec, ("open('owned', 'w')",)), 4), None, pickle.UnpicklingError, "made by builtins.exec"),
    ("an instance", lambda: b"\x80\x02(cos\nsystem\nX\x05\x00\x00\x00touchi__main__\nX\n.", None, pickle.UnpicklingError, "opcode INST"),
    ("a class", lambda: b"\x80\x02cos\nsystem\n.", None, pickle.UnpicklingError, "os.system"),
    ("attributes", lambda: b"\x80\x02ccollections\nOrderedDict\n)R}X\x09\x00\x00\x00__class__K\x01sb.", None, pickle.UnpicklingError, "attributes of its own"),
    ("a factory", lambda: b"\x80\x02ccollections\ndefaultdict\ncos\nsystem\n\x85R.", None, RuntimeError, "os.system"),
    ("extension registry", lambda: b"\x80\x02\x82\x01.", None, (pickle.UnpicklingError, RuntimeError), "EXT1|damaged"),
    ("fewer bytes", lambda: tensor_code(numel=4), {"0": b"\x00" * 12}, RuntimeError, "has 12 bytes, its tensors say 16"),
    ("huge storage", lambda: tensor_code(numel=2**31 - 1), {"0": b"\x00" * 16}, RuntimeError, "has 16 bytes"),
    ("past the end", lambda: tensor_code(size=(5,)), {"0": b"\x00" * 16}, RuntimeError, "damaged"),
    ("by its offset", lambda: tensor_code(offset=1), {"0": b"\x00" * 16}, RuntimeError, "damaged"),
    ("by its stride", lambda: tensor_code(size=(2, 2), stride=(3, 1)), {"0": b"\x00" * 16}, RuntimeError, "damaged"),
    ("before its start", lambda: tensor_code(offset=-1), {"0": b"\x00" * 16}, RuntimeError, "damaged"),
    ("backwards", lambda: tensor_code(offset=3, stride=(-1,)), {"0": b"\x00" * 16}, RuntimeError, "damaged"),
    ("sizes and strides differ", lambda: tensor_code(size=(2, 2), stride=(1,)), {"0": b"\x00" * 16}, RuntimeError, "damaged"),
    ("no such storage", lambda: tensor_code(), {}, RuntimeError, "no 'data/0'"),
    ("unknown storage", lambda: tensor_code(kind="Quantized"), {"0": b"\x00" * 16}, pickle.UnpicklingError, "storage of torch.Quantized"),
    ("cut off", lambda: tensor_code()[:-1], {"0": b"\x00" * 16}, RuntimeError, "damaged"),
    ("an empty stack", lambda: b"\x80\x02R.", None, RuntimeError, "damaged"),
    ("no pickle", lambda: b"hello", None, RuntimeError, "damaged"),
]


@pytest.mark.parametrize(("code", "storages", "error", "text"), [h[1:] for h in HOSTILE], ids=[h[0] for h in HOSTILE])
def test_hostile_files(code, storages, error, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=text):
        ampc.load(archive(tmp_path / "file.pt", code(), storages))
    assert os.listdir(tmp_path) == ["file.pt"]


def test_the_hostile_files_differ_from_a_good_one_only_there(tmp_path):
    data = np.arange(4, dtype=np.float32).tobytes()
    assert ampc.load(archive(tmp_path / "good.pt", tensor_code(), {"0": data})).tolist() == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="compressed"):
        ampc.load(archive(tmp_path / "bomb.pt", tensor_code(), {"0": data}, compression=zipfile.ZIP_DEFLATED))


REFUSED = (RuntimeError, pickle.UnpicklingError, KeyError, ValueError, TypeError, AttributeError, IndexError, NotImplementedError, zipfile.BadZipFile, EOFError)


def test_damaged_files_raise_and_nothing_worse(tmp_path):
    """Every byte of our file, and of torch's, changed: an error or another value, never more. A file that is cut off is an error."""
    ampc.save({"x": ampc.arange(6.0).view(2, 3).t(), "n": [1, (2, 3)], "a": np.arange(3)}, tmp_path / "ours")
    archive(tmp_path / "theirs", tensor_code(), {"0": b"\x00" * 16})
    rng = random.Random(1)
    for name in ("ours", "theirs"):
        data = (tmp_path / name).read_bytes()
        for at in range(len(data)):
            with pytest.raises(REFUSED):
                ampc.load(io.BytesIO(data[:at]))
            for changed in (data[:at] + bytes([rng.randrange(256)]) + data[at + 1:], data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]):
                with contextlib.suppress(*REFUSED):
                    ampc.load(io.BytesIO(changed))


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda p: ampc.save(ampc.ones(1), 5), TypeError, "path or a binary file object, got int"),
    (lambda p: ampc.load(5), TypeError, "path or a binary file object, got int"),
    (lambda p: ampc.load(io.StringIO("x")), TypeError, "binary mode"),
    (lambda p: ampc.save(1, p / "no" / "file"), FileNotFoundError, "no folder"),
    (lambda p: ampc.save(1, p), IsADirectoryError, "folder"),
    (lambda p: ampc.load(p / "none"), FileNotFoundError, "none"),
    (lambda p: ampc.load(io.BytesIO(b"hello")), RuntimeError, "neither"),
    (lambda p: ampc.load(io.BytesIO(pickle.dumps({"a": 1}, 2))), RuntimeError, "before 1.6"),
    (lambda p: ampc.save(1, p / "x", pickle_module=os), ValueError, "pickle module"),
])
def test_bad_use(call, error, text, tmp_path):
    with pytest.raises(error, match=text):
        call(tmp_path)
    assert not os.listdir(tmp_path)


def test_a_structure_that_contains_itself(tmp_path):
    loop = {"list": []}
    loop["list"].append(loop)
    with pytest.raises(ValueError, match="contains itself at list.0"):
        ampc.save(loop, tmp_path / "loop")
    assert not os.listdir(tmp_path)


# -- being killed ------------------------------------------------------------------------------------------------------

SAVER = """
import sys
import tempfile
import ampc
path, first = sys.argv[1], int(sys.argv[2])
for step in range(first, first + 100_000):
    values = ampc.full((64, 256), float(step))
    ampc.save({"step": step, "values": values, "more": [values + i for i in range(4)]}, path)
    print(step, flush=True)
"""


@pytest.mark.slow
def test_killed_at_any_moment_nothing_is_lost(tmp_path):
    """kill -9 while files are written, at moments drawn: the last file that save returned from, or a later one, is there and whole."""
    path, last, kills = tmp_path / "state.pt", 0, 0
    rng = random.Random(DRAWN)
    while kills < (1000 if "AMPC_EXAMPLES" in os.environ else 50):
        saver = subprocess.Popen([sys.executable, "-c", SAVER, str(path), str(last + 1)], stdout=subprocess.PIPE, text=True)
        said = saver.stdout.readline()  # from here on it writes and writes
        time.sleep(rng.random() * 0.02)
        saver.send_signal(signal.SIGKILL)
        said += saver.stdout.read()
        saver.wait()
        kills += 1
        said = [int(line) for line in said.split("\n")[:-1]]
        got = ampc.load(path)
        assert said and got["step"] >= max(said), (got["step"], said)
        assert all(bool((t == got["step"] + i).all()) for t, i in [(got["values"], 0), *zip(got["more"], range(4))])
        last = got["step"]
    assert len(os.listdir(tmp_path)) <= 2  # what the last one left is cleared away by the next save
    ampc.save(1, path)
    assert os.listdir(tmp_path) == ["state.pt"]


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no devices")
def test_a_device_is_not_read():
    with pytest.raises(RuntimeError, match="device"):
        ampc.load("/dev/zero")


def test_an_open_empty_file_is_written_and_not_replaced(tmp_path):
    """What tempfile makes is open and empty: whoever has it open reads what was saved under its name."""
    with tempfile.NamedTemporaryFile(dir=tmp_path) as f:
        ampc.save({"x": ampc.ones(2)}, f.name)
        f.seek(0)
        assert ampc.load(f)["x"].tolist() == [1, 1]
        with open(f.name, "rb") as before:
            ampc.save({"x": ampc.zeros(2)}, f.name)  # a checkpoint is not overwritten, but replaced by a whole one
            assert ampc.load(before)["x"].tolist() == [1, 1] and ampc.load(f.name)["x"].tolist() == [0, 0]


def test_an_open_file_is_whole_after_save(tmp_path):
    """Its name may be given to somebody else before it is closed."""
    for form in ("ampc", "torch"):
        with open(tmp_path / form, "wb") as f:
            ampc.save({"x": ampc.ones(2)}, f, format=form)
            assert ampc.load(tmp_path / form)["x"].tolist() == [1, 1]


def test_pickled_dtypes_are_names_of_their_module():
    import copy

    torch = pytest.importorskip("torch")
    dtypes = {name: d for name, d in vars(ampc._C).items() if isinstance(d, ampc.dtype)}
    assert "bfloat16" in dtypes
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert all(pickle.loads(pickle.dumps(d, protocol)) is d for d in dtypes.values())
    for name, d in dtypes.items():
        assert copy.copy(d) is d and copy.deepcopy([d])[0] is d
        as_torch = pickle.dumps(d, 0).replace(b"campc\n", b"ctorch\n")  # as ampc run writes it
        assert pickle.loads(as_torch) is getattr(torch, name)


class Odd:
    """What JSON does not hold."""

    def __init__(self, value):
        self.value, self.shape = value, ampc.Size([2, 3])


def test_attributes_of_tensors_are_saved(tmp_path):
    t, p, m = ampc.arange(3.0), nn.Parameter(ampc.ones(2)), ampc.zeros(2, device="meta")
    t.names, t.itself, t.other, m.note = ["a", {"b": 1}], t, p, "no values"
    p.sharded, p.scale = True, ampc.tensor(2.0)
    for got in there_and_back([t, p, t, m], tmp_path):
        assert got[0].names == ["a", {"b": 1}] and got[0].itself is got[0] is got[2] and got[0].other is got[1] and got[3].note == "no values"
        assert type(got[1]) is nn.Parameter and got[1].sharded is True and got[1].scale.item() == 2 and got[0].tolist() == [0, 1, 2]
    t.odd = Odd(5)
    with pytest.raises(pickle.UnpicklingError):
        there_and_back([t, p], tmp_path)
    for how in ({"weights_only": False}, {}):
        with ampc.serialization.safe_globals([] if how else [Odd, nn.Parameter]):
            for got in there_and_back([t, p], tmp_path, **how):
                assert got[0].odd.value == 5 and got[0].odd.shape == (2, 3) and got[0].itself is got[0] and got[0].other is got[1] and type(got[1]) is nn.Parameter and got[1].sharded is True
    model = nn.Linear(2, 2)
    model.weight.tag = "x"
    assert there_and_back(model, tmp_path, weights_only=False)[0].weight.tag == "x"


def test_storages_and_bytearrays_are_saved(tmp_path):
    t = ampc.arange(6.0)
    obj = {"t": t, "typed": t.storage(), "bytes": t.untyped_storage(), "half": ampc.ones(2, dtype=ampc.float16).storage(), "none": ampc.UntypedStorage(0), "array": bytearray(b"abc")}
    for got in there_and_back(obj, tmp_path):
        got["typed"][1] = 9
        assert got["t"].tolist() == got["typed"].tolist() == [0, 9, 2, 3, 4, 5] and got["bytes"] is got["t"].untyped_storage() and got["bytes"].nbytes() == 24
        assert got["half"].dtype is ampc.float16 and got["half"].tolist() == [1, 1] and got["none"].nbytes() == 0 and got["array"] == bytearray(b"abc")


def test_attributes_in_files_of_torch(tmp_path):
    torch = pytest.importorskip("torch")
    t, p = torch.arange(3.0), torch.nn.Parameter(torch.ones(2))
    t.names, p.sharded = ["a", 1], True
    torch.save([t, p, t], tmp_path / "f")
    got = ampc.load(tmp_path / "f")
    assert got[0].tolist() == [0, 1, 2] and got[0].names == ["a", 1] and got[0] is got[2]
    assert type(got[1]) is nn.Parameter and got[1].sharded is True and got[1].requires_grad
