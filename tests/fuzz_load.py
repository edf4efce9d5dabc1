"""Damages the files of corpus/ in every way, and loads them: a value or a documented error, within a second, and never more.

``python fuzz_load.py [N [SEED [PROCESSES]]]``; what number FIRST of a seed was: ``python fuzz_load.py --show SEED FIRST``. Files are
damaged as bytes, and from within: the pickle of a zip, whose checksums are made right again, and the header of a safetensors file, whose
length is. ``make soak`` loads ten million; tests/test_serialization.py a few thousand."""

import faulthandler
import io
import json
import mmap
import os
import pickle
import random
import resource
import struct
import subprocess
import sys
import time
import zipfile

import ampc

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
SECONDS = 1  # for one file, of its process's time
MEMORY = 1 << 30  # what a process may grow to beyond what it has at its start
BLOCK = 20_000  # files of one process

INTERESTING = [b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff" * 2, b"\xff" * 4, b"\x00" * 4, b"\xff" * 8, struct.pack("<i", -1), struct.pack("<q", 2**62),
               struct.pack("<I", 2**31), b"[" * 200, b"(" * 200, b"-1", b"99999999999999999999", b"1e999", b"NaN", b'"#"', b"null", b"{}", b"[]", b"\n", b"."]
OPCODES = [bytes([op]) for op in b"(.012FIJKLMNPQRSTUVXabcdeghijlopqrstu}])\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98"]
PICKLED = [*OPCODES, b"cos\nsystem\n", b"ccollections\nOrderedDict\n", b"ccollections\nCounter\n", b"ccollections\ndefaultdict\n", b"c__builtin__\nset\n", b"ctorch\nSize\n",
           b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nBoolStorage\n", b"ctorch\nfloat32\n", b")R", b"\x86", b"\x85R", b"h\x00", b"h\x01", b"q\x00", b"2\x86" * 60, b"\x85" * 300,
           b"q\x00h\x00\x86" * 60, b"\x8b\xff\xff\xff\x7f", b"\x8a\xff" + b"\xff" * 255, b"K\x01", b"J\xff\xff\xff\xff", b"\x8a\x08" + b"\xff" * 7 + b"\x7f", b"G\x7f\xf0" + b"\0" * 6, b"Q"]
WORDS = [b'"tensor"', b'"tuple"', b'"set"', b'"frozenset"', b'"dict"', b'"OrderedDict"', b'"Counter"', b'"Size"', b'"numpy array"', b'"device"', b'"items":', b'"shape":', b'"stride":',
         b'"BOOL"', b'"F64"', b'"data_offsets":', b"[0,0]", b"9223372036854775807", b"-9223372036854775808", b"18446744073709551616", b"\\u0000", b"\\ud800"]


class File:
    """A good file, taken apart."""

    def __init__(self, name):
        with open(os.path.join(CORPUS, name), "rb") as f:
            self.name, self.data = name, f.read()
        self.entries = []
        if self.data[:2] == b"PK":
            with zipfile.ZipFile(io.BytesIO(self.data)) as z:
                self.entries = [(i.filename, z.read(i)) for i in z.infolist() if ".format" not in i.filename and "version" not in i.filename]
        else:
            size = int.from_bytes(self.data[:8], "little")
            self.header, self.body = self.data[8:8 + size], self.data[8 + size:]


def changed(data, rng, words):
    """``data`` with one to four small changes."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at, n = rng.randrange(len(data) + 1), rng.choice((1, 1, 2, 4, 8, rng.randrange(64)))
        way = rng.randrange(8)
        if way == 0:
            data[at:at + 1] = bytes([rng.randrange(256)])
        elif way == 1 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif way == 2:
            del data[at:at + n]
        elif way == 3:
            other = rng.randrange(len(data) + 1)
            data[at:at] = data[other:other + n]
        elif way == 4:
            word = rng.choice(INTERESTING)
            data[at:at + len(word)] = word
        elif way == 5:
            other = rng.randrange(len(data) + 1)
            data[at:at + n] = data[other:other + n]
        elif way == 6 and rng.random() < 0.1:
            del data[at:]
        else:
            word = rng.choice(words)
            data[at:at + rng.choice((0, len(word)))] = word
    return bytes(data)


def zipped(entries, rng):
    """A zip file; now and then one with a feature that torch does not use."""
    out = io.BytesIO()
    odd = rng.random() < 0.05
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if odd and rng.random() < 0.3 else zipfile.ZIP_STORED) as z:
        for name, data in entries:
            z.writestr(zipfile.ZipInfo(rng.choice((name, "/" + name, "../" + name, name * 2)) if odd and rng.random() < 0.2 else name), data)
    return changed(out.getvalue(), rng, INTERESTING) if odd else out.getvalue()


def damaged(files, rng):
    file = rng.choice(files)
    way = rng.random()
    if way < 0.2:
        return changed(file.data, rng, INTERESTING)
    if file.entries:
        at = rng.randrange(len(file.entries)) if way < 0.3 else next(i for i, (n, _) in enumerate(file.entries) if n.endswith("data.pkl"))
        entries = list(file.entries)
        entries[at] = entries[at][0], changed(entries[at][1], rng, PICKLED)
        return zipped(entries, rng)
    header = file.header
    text = json.loads(header).get("__metadata__", {}).get("ampc")
    if way < 0.7 and text:
        inner = changed(text.encode(), rng, WORDS).decode("utf-8", "replace")
        header = json.dumps({**json.loads(header), "__metadata__": {"ampc": inner}}).encode()
    else:
        header = changed(header, rng, WORDS)
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + file.body


def used(value):
    """Reads all that a loaded value holds."""
    if isinstance(value, ampc.Tensor):
        if value.numel() <= 100_000:
            flat = value.detach().reshape(-1).contiguous()
            bytes_ = flat.view(ampc.uint8)
            assert value.dtype is not ampc.bool or not value.numel() or int(bytes_.max()) <= 1
            flat.double().sum().item()
    elif isinstance(value, dict):
        for k, v in value.items():
            used(k), used(v)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for v in value:
            used(v)


def one(files, seed, number):
    """The damaged file of that number is loaded; what came of it."""
    data = damaged(files, random.Random(seed * 1_000_003 + number))
    started = time.process_time()
    try:
        value = ampc.load(io.BytesIO(data))
        took = time.process_time() - started
        used(value)
        what = "loaded"
    except (RuntimeError, pickle.UnpicklingError) as error:
        took = time.process_time() - started
        assert type(error).__name__ in ("RuntimeError", "UnpicklingError", "EmptyFile", "UnknownFormat"), error
        assert len(str(error)) < 2000
        what = type(error).__name__ if type(error) is pickle.UnpicklingError else "RuntimeError"
    assert took < SECONDS, f"it took {took:.1f} s"
    return what


def corpus():
    return [File(name) for name in sorted(os.listdir(CORPUS)) if name.endswith((".pt", ".safetensors"))]


def some(seed, first, count, note=None):
    """A block of them, in this process; how many of each outcome."""
    files, outcomes, at = corpus(), {}, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(first, first + count):
        if note is not None:
            note[:8] = number.to_bytes(8, "little")
        if number % 500 == 0:
            faulthandler.dump_traceback_later(60, exit=True)
        try:
            what = one(files, seed, number)
        except BaseException as error:
            raise AssertionError(f"seed {seed}, number {number}: {type(error).__name__}: {error}") from error
        outcomes[what] = outcomes.get(what, 0) + 1
    faulthandler.cancel_dump_traceback_later()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - at
    assert grown < MEMORY >> 10, f"seed {seed}, numbers {first} to {first + count}: {grown >> 10} MiB more memory"
    return outcomes


def main(count=10_000_000, seed=None, processes=2):
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    print(f"seed {seed}", flush=True)
    total, running, todo, started = {}, [], list(range(0, count, BLOCK)), time.time()
    failed = 0
    while todo or running:
        while todo and len(running) < processes:
            first = todo.pop(0)
            command = [sys.executable, __file__, "--block", str(seed), str(first), str(min(BLOCK, count - first))]
            running.append((first, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)))
        first, process = running.pop(0)
        out, problem = process.communicate()
        if process.returncode:
            failed += 1
            print(f"seed {seed}, in the block at {first}: exit status {process.returncode}\n{out}\n{problem[-2000:]}", flush=True)
            continue
        for what, n in json.loads(out.splitlines()[-1]).items():
            total[what] = total.get(what, 0) + n
        if first % (BLOCK * 50) == 0:
            print(f"{sum(total.values())} files in {time.time() - started:.0f} s: {total}", flush=True)
    print(f"{sum(total.values())} files in {time.time() - started:.0f} s: {total}; {failed} blocks failed")
    return 1 if failed else 0


def block(seed, first, count):
    note = mmap.mmap(-1, 8)  # a child's crash leaves the number here
    child = os.fork()
    if child == 0:
        try:
            print(json.dumps(some(seed, first, count, note)), flush=True)
        except BaseException as error:
            print(error, flush=True)
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status:
        print(f"number {int.from_bytes(note[:8], 'little')} ended it with status {status}")
    return 1 if status else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--block"]:
        sys.exit(block(*map(int, sys.argv[2:5])))
    if sys.argv[1:2] == ["--show"]:
        sys.stdout.buffer.write(damaged(corpus(), random.Random(int(sys.argv[2]) * 1_000_003 + int(sys.argv[3]))))
        sys.exit(0)
    sys.exit(main(*map(int, sys.argv[1:])))
