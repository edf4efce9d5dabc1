"""What files can do to whoever loads them, and what saving does to what lies there: see hostile_files.py and fuzz_load.py."""

import hashlib
import http.server
import io
import json
import os
import pickle
import random
import stat
import subprocess
import sys
import threading

import fuzz_load
import hostile_files
import numpy as np
import pytest

import ampc
from ampc import nn
from ampc.serialization import _bounds, _files

HARMLESS = {"a place of 2^32", "more entries than there are"}  # they load
ASK_FOR_TRUST = {"INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE", "REDUCE of a reduced", "BUILD", "BUILD of a tensor", "EXT1", "EXT4", "PERSID", "NEXT_BUFFER", "READONLY_BUFFER",
                 "a name in a list", "a name in a dict", "a name in an ordered dict", "a reference of four", "a reference that is a string", "an unknown dtype", "a huge number"}


def test_hostile_files_raise_at_once_and_take_little():
    """Each in a second and in memory of a few times its size: a RuntimeError, or an UnpicklingError where trust would help."""
    done = subprocess.run([sys.executable, hostile_files.__file__], capture_output=True, text=True, timeout=300)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [r[0] for r in results] == list(hostile_files.FILES), (done.returncode, done.stderr[-2000:])
    for name, said, seconds, mib, size in results:
        kind = "loaded" if name in HARMLESS else "UnpicklingError" if name in ASK_FOR_TRUST else "RuntimeError"
        assert said.startswith(kind), (name, said)
        assert seconds < 3 and mib < 400 and len(said) < 500, (name, said, seconds, mib, size)


def test_the_corpus_loads_and_damaged_files_of_it_do_no_harm():
    for file in fuzz_load.corpus():
        fuzz_load.used(ampc.load(os.path.join(fuzz_load.CORPUS, file.name)))
    seed = int(os.environ.get("AMPC_TEST_SEED", random.SystemRandom().randrange(10**6)))
    print(f"seed {seed}")
    outcomes = fuzz_load.some(seed, 0, int(os.environ.get("AMPC_EXAMPLES", "4000")))
    assert all(outcomes[kind] > 20 for kind in ("loaded", "RuntimeError", "UnpicklingError")), outcomes


def test_what_the_bounds_let_through(tmp_path):
    """Large and deep files that are honest: as deep as it may be, a million ints, shared lists, keys of every kind."""
    deep = ()
    for _ in range(_bounds.DEPTH - 3):
        deep = (deep,)
    shared = [1, 2, 3]
    obj = {"deep": {deep: 1}, "ints": list(range(300_000)), "shared": [shared] * 1000, "keys": {(i, -i): 0 for i in range(3000)}, 2**70: 1, -1: 2, -2: 3, 1.5: None}
    ampc.save(obj, tmp_path / "ours")
    assert ampc.load(tmp_path / "ours") == obj
    with open(tmp_path / "theirs", "wb") as f:
        f.write(hostile_files.zipped(pickle.dumps(obj, 2)))
    assert ampc.load(tmp_path / "theirs") == obj
    deeper = deep
    for _ in range(3):
        deeper = [deeper]
    with pytest.raises(ValueError, match="at most 100 containers within each other"):
        ampc.save(deeper, tmp_path / "deeper")


def test_what_map_location_raises_is_the_callers(tmp_path):
    ampc.save([ampc.ones(2)], tmp_path / "x")

    def where(t, name):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ampc.load(tmp_path / "x", map_location=where)


def test_bytes_of_bools_become_truth_values(tmp_path):
    (tmp_path / "ours").write_bytes(hostile_files.structured('{"x":{"#":"tensor","name":"x"}}', [("x", "BOOL", [4], b"\xff\x00\x02\x01")]))
    (tmp_path / "theirs").write_bytes(hostile_files.pickled(hostile_files.tensor(kind=b"Bool"), {"0": b"\xff\x00\x02\x01"}))
    for t in (ampc.load(tmp_path / "ours")["x"], ampc.load(tmp_path / "theirs")):
        assert t.dtype is ampc.bool and t.view(ampc.uint8).tolist() == [1, 0, 1, 1]
    foreign = ampc.from_numpy(np.array([255, 0, 2], np.uint8).view(bool))  # memory of others is read with care
    assert foreign.long().tolist() == [1, 0, 1] and int(foreign.sum()) == 2 and (foreign == True).tolist() == [True, False, True]  # noqa: E712


# -- one storage ---------------------------------------------------------------------------------------------------


def test_storages_are_saved_as_torch_saves_them(tmp_path):
    """The same views in both libraries: which share memory after loading, at which offsets, and of how large storages."""
    torch = pytest.importorskip("torch")

    def views(lib):
        base, other = lib.arange(1000.0), lib.zeros(5)
        net = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.Linear(4, 4))
        net[1].bias = net[0].bias
        return {"small": base[500:503], "row": base.view(10, 100)[3], "column": base.view(10, 100)[:, 3], "none": base[:0], "other": other, "again": other, "expanded": other[:1].expand(4), **net.state_dict()}

    def seen(lib, bytes_of):
        ours = lib.load(tmp_path / lib.__name__)
        addresses = {}
        for t in ours.values():
            addresses.setdefault(bytes_of(t)[0], len(addresses))
        return {k: (addresses[bytes_of(t)[0]], bytes_of(t)[1], t.storage_offset(), tuple(t.shape), t.stride()) for k, t in ours.items()}, ours["other"] is ours["again"]

    ampc.save(views(ampc), tmp_path / "ampc")
    torch.save(views(torch), tmp_path / "torch")
    mine = seen(ampc, lambda t: (t._storage_ptr(), t._storage_bytes()))
    assert mine == seen(torch, lambda t: (t.untyped_storage().data_ptr(), t.untyped_storage().nbytes())) and mine[1]


def test_views_in_several_dtypes_share_memory(tmp_path):
    base = ampc.arange(8.0)
    ampc.save({"float": base, "int": base.view(ampc.int32)[2:4], "bytes": base.view(ampc.uint8)[1:2]}, tmp_path / "x")
    got = ampc.load(tmp_path / "x")
    assert got["float"].tolist() == base.tolist() and got["int"].tolist() == base.view(ampc.int32)[2:4].tolist() and got["bytes"].storage_offset() == 1
    got["float"][2] = 77.0
    assert got["int"].view(ampc.float32).tolist() == [77, 3]


def test_tensors_that_are_one_are_one_again(tmp_path):
    weight, t = nn.Parameter(ampc.ones(2)), ampc.ones(3)
    ampc.save([weight, weight, [t, {"t": t}], t.clone()], tmp_path / "x")
    got = ampc.load(tmp_path / "x")
    assert got[0] is got[1] and got[2][0] is got[2][1]["t"] and got[3] is not got[2][0] and type(got[0]) is nn.Parameter


# -- where it is saved ---------------------------------------------------------------------------------------------


def test_links_devices_and_fifos_stay_what_they_are(tmp_path):
    (tmp_path / "folder").mkdir()
    os.symlink("folder/real", tmp_path / "link")
    for value in (1, 2):  # a link that leads nowhere yet, and one that leads to a file
        ampc.save(value, tmp_path / "link")
        assert os.path.islink(tmp_path / "link") and ampc.load(tmp_path / "link") == ampc.load(tmp_path / "folder" / "real") == value
    os.mkfifo(tmp_path / "fifo")
    heard = []
    reader = threading.Thread(target=lambda: heard.append(ampc.load(tmp_path / "fifo")))
    reader.start()
    ampc.save({"x": ampc.arange(50_000)}, tmp_path / "fifo")
    reader.join(30)
    assert heard[0]["x"].tolist() == list(range(50_000)) and stat.S_ISFIFO(os.stat(tmp_path / "fifo").st_mode)
    ampc.save(1, "/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    if os.path.exists("/dev/full"):
        with pytest.raises(OSError, match="No space left"):
            ampc.save(1, "/dev/full")
    assert sorted(os.listdir(tmp_path)) == ["fifo", "folder", "link"]


def test_modes_and_long_names(tmp_path):
    name = "x" * 250
    old = os.umask(0o027)
    try:
        ampc.save(1, tmp_path / name)
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat(tmp_path / name).st_mode) == 0o640
    os.chmod(tmp_path / name, 0o604)
    ampc.save(2, tmp_path / name)
    assert stat.S_IMODE(os.stat(tmp_path / name).st_mode) == 0o604 and ampc.load(tmp_path / name) == 2
    os.chmod(tmp_path / name, 0o444)
    if os.geteuid():
        with pytest.raises(PermissionError):
            ampc.save(3, tmp_path / name)


def test_only_dead_writers_of_this_machine_are_cleared_away(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    here, elsewhere = _files.machine(), "0123456789ab"
    left = {f".ampc-{here}-{dead.pid}-00000000.partial": False, f".ampc-{here}-{os.getpid()}-00000000.partial": True, f".ampc-{elsewhere}-{dead.pid}-00000000.partial": True,
            f".ampc-{here}-{dead.pid}-0000000.partial": True, "other": True}
    for name in left:
        (tmp_path / name).mkdir()
    ampc.save(1, tmp_path / "file")
    assert set(os.listdir(tmp_path)) == {name for name, stays in left.items() if stays} | {"file"}


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_what_a_killed_save_leaves_has_the_documented_name(tmp_path):
    code = "import ampc, os, sys\nfrom ampc.serialization import _files\n_files._sync = lambda handle: os.kill(os.getpid(), 9)\nampc.save(1, sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")])
    assert len(os.listdir(tmp_path)) == 1 and _files._LEFT.fullmatch(os.listdir(tmp_path)[0])
    ampc.save(1, tmp_path / "another")
    assert os.listdir(tmp_path) == ["another"]


# -- downloads -----------------------------------------------------------------------------------------------------


@pytest.fixture
def server():
    """Serves 1000 bytes: as they are, cut off, or with a Content-Length that is nonsense."""
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            if "none" not in self.path:
                self.send_header("Content-Length", "many" if "nonsense" in self.path else "1000")
            self.end_headers()
            self.wfile.write(bytes(range(250)) * (2 if "cut" in self.path else 4))

        def log_message(self, *args):
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}/"
    running.shutdown()
    running.server_close()


def test_downloads_are_whole_or_not_there(server, tmp_path):
    whole = bytes(range(250)) * 4
    right = hashlib.sha256(whole).hexdigest()[:8]
    for path in ("whole", "none", "nonsense"):
        ampc.hub.download_url_to_file(server + path, str(tmp_path / path), right, progress=False)
        assert (tmp_path / path).read_bytes() == whole
        os.remove(tmp_path / path)
    with pytest.raises(RuntimeError, match="500 of 1000 bytes"):
        ampc.hub.download_url_to_file(server + "cut", str(tmp_path / "cut"), progress=False)
    with pytest.raises(RuntimeError, match="does not begin with 0000"):
        ampc.hub.download_url_to_file(server + "whole", str(tmp_path / "wrong"), "0000", progress=False)
    with pytest.raises(RuntimeError, match="500 of 1000 bytes"):
        ampc.hub.load_state_dict_from_url(server + "cut.pt", str(tmp_path), progress=False)
    assert not os.listdir(tmp_path)
    (tmp_path / "kept").write_bytes(b"old")
    with pytest.raises(RuntimeError, match="500 of 1000"):
        ampc.hub.download_url_to_file(server + "cut", str(tmp_path / "kept"), progress=False)
    assert (tmp_path / "kept").read_bytes() == b"old" and os.listdir(tmp_path) == ["kept"]


def test_an_error_does_not_quote_the_whole_file():
    """A number of text that ends thousands of bytes later, which Python's message repeats."""
    import zipfile

    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr("archive/data.pkl", b"\x80\x02F" + b"\x85" * 5000 + b"\n.")
        file.writestr("archive/version", "3\n")
    with pytest.raises(RuntimeError, match="damaged") as raised:
        ampc.load(io.BytesIO(made.getvalue()))
    assert len(str(raised.value)) < 500
