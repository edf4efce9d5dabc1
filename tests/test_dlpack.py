"""DLPack capsules that no library should make: each is refused, and stays its maker's."""

import ctypes
import gc
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import ampc

CPU, FLOAT = 1, 2


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Plain(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


new = ctypes.pythonapi.PyCapsule_New
new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
name_of = ctypes.pythonapi.PyCapsule_GetName
name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Lender:
    """Six floats, 0 to 5, lent out as they are described; counts how often they are given back."""

    def __init__(self, shape=(2, 3), strides=None, versioned=False, deleter=True, name=None, major=1, flags=0, **about):
        def numbers(values):
            return None if values is None else (ctypes.c_int64 * max(len(values), 1))(*values)

        self.values, self.returned = np.arange(6, dtype=np.float32), 0
        self.shape, self.strides, self.deleter = numbers(shape), numbers(strides), Deleter(self.give_back)
        self.managed = Versioned(major=major, flags=flags) if versioned else Plain()
        self.managed.deleter = ctypes.cast(self.deleter, ctypes.c_void_p) if deleter else None
        about = {"data": self.values.ctypes.data, "device_type": CPU, "ndim": len(shape or ()), "code": FLOAT, "bits": 32, "lanes": 1, **about}
        for field, value in about.items():
            setattr(self.managed.tensor, field, value)
        for field in ("shape", "strides"):
            if getattr(self, field) is not None:
                setattr(self.managed.tensor, field, ctypes.cast(getattr(self, field), ctypes.POINTER(ctypes.c_int64)))
        self.name = name or (b"dltensor_versioned" if versioned else b"dltensor")
        self.capsule = new(ctypes.addressof(self.managed), self.name, None)

    def give_back(self, pointer):
        assert pointer == ctypes.addressof(self.managed)
        self.returned += 1


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize(("about", "want"), [
    ({}, [[0, 1, 2], [3, 4, 5]]), ({"strides": (1, 2)}, [[0, 2, 4], [1, 3, 5]]), ({"shape": ()}, 0.0), ({"shape": (0, 3), "data": None}, []), ({"shape": (2,), "byte_offset": 8}, [2, 3]),
    ({"shape": (4,), "strides": (0,)}, [0] * 4), ({"shape": (0, 2**40), "strides": (2**62, 2**62)}, []), ({"deleter": False}, [[0, 1, 2], [3, 4, 5]]),
])
def test_good_capsules(about, want, versioned):
    lender = Lender(versioned=versioned, **about)
    t = ampc.from_dlpack(lender.capsule)
    assert t.tolist() == want and name_of(lender.capsule) == b"used_" + lender.name and lender.returned == 0
    del t
    gc.collect()
    assert lender.returned == about.get("deleter", True)


BAD = {
    "no data": ({"data": None}, "no data"), "no shape": ({"shape": None, "ndim": 2}, "no shape"), "negative ndim": ({"ndim": -1}, "negative"),
    "13 dimensions": ({"shape": (1,) * 13}, "more dimensions"), "2^31 - 1 dimensions": ({"ndim": 2**31 - 1}, "more dimensions"), "a negative size": ({"shape": (-2, 3)}, "size is negative"),
    "a negative size beside 0": ({"shape": (0, -3)}, "size is negative"), "2^62 elements": ({"shape": (2**62, 2)}, "more elements"), "2^64 elements": ({"shape": (2**32, 2**32)}, "more elements"),
    "a stride of -1": ({"shape": (3,), "strides": (-1,)}, "stride is negative"), "strides beyond memory": ({"strides": (2**62, 2**62)}, "beyond any memory"),
    "2^63 bytes": ({"shape": (2,), "strides": (2**61,)}, "beyond any memory"), "an offset that wraps": ({"byte_offset": 2**64 - 4}, "beyond any memory"),
    "an odd offset": ({"shape": (2,), "byte_offset": 3}, "not aligned"), "an odd address": ({"data": 1001}, "not aligned"), "Metal": ({"device_type": 8}, "device type 8"),
    "device type -1": ({"device_type": -1}, "device type -1"), "GPU -1": ({"device_type": 2, "device_id": -1}, "a number that none has"), "GPU 2^31 - 1": ({"device_type": 2, "device_id": 2**31 - 1}, "a number"),
    "complex": ({"code": 5, "bits": 64}, "code 5"), "4 bits": ({"bits": 4}, "4 bits"), "4 lanes": ({"lanes": 4}, "4 lanes"), "no lanes": ({"lanes": 0}, "0 lanes"),
    "an opaque handle": ({"code": 3, "bits": 64}, "code 3"), "float8": ({"code": 10, "bits": 8}, "code 10"),
}


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("name", BAD)
def test_bad_capsules_are_refused_and_left_alone(name, versioned):
    about, text = BAD[name]
    lender = Lender(versioned=versioned, **about)
    with pytest.raises(BufferError, match=text):
        ampc.from_dlpack(lender.capsule)
    assert lender.returned == 0 and name_of(lender.capsule) == lender.name


def test_versions_flags_and_names():
    for about, text in [({"major": 2}, "version 2.0"), ({"major": 2**32 - 1, "shape": None, "ndim": 5}, "version 4294967295"), ({"flags": 1}, "read-only")]:
        lender = Lender(versioned=True, **about)
        with pytest.raises(BufferError, match=text):
            ampc.from_dlpack(lender.capsule)
        assert lender.returned == 0
    for name in (b"dltensor2", b"used_dltensor", b"x" * 1000):
        lender = Lender(name=name)
        with pytest.raises(RuntimeError, match="taken once"):
            ampc.from_dlpack(lender.capsule)
    once = ampc.arange(3).__dlpack__()
    assert ampc.from_dlpack(once).tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="used_dltensor"):
        ampc.from_dlpack(once)
    for other in (None, 5, "x", object()):
        with pytest.raises(RuntimeError, match="__dlpack__"):
            ampc.from_dlpack(other)


def test_asking_for_a_device_that_cannot_be():
    x = ampc.ones(2)
    with pytest.raises(BufferError, match="type 8"):
        x.__dlpack__(dl_device=(8, 0))


def test_objects_whose_answers_are_nonsense():
    class Odd:
        def __init__(self, capsule, device=(1, 0)):
            self.capsule, self.device = capsule, device

        def __dlpack__(self, **how):
            return self.capsule

        def __dlpack_device__(self):
            return self.device

    for odd in (Odd(None), Odd(5), Odd("x")):
        with pytest.raises(RuntimeError, match="capsule"):
            ampc.from_dlpack(odd)
    lender = Lender()
    assert ampc.from_dlpack(Odd(lender.capsule)).shape == (2, 3)


def test_a_subinterpreter_is_told_why():
    """The first import of a process and a later one; what Python itself says of such modules, from 3.12 on, is as plain."""
    code = """
        import sys
        sys.path[:0] = PATH
        {first}
        try:
            import _xxsubinterpreters as sub
        except ImportError:
            import _interpreters as sub
        for _ in range(2):
            told = None
            try:
                told = sub.run_string(sub.create(), "import sys; sys.path[:0] = PATH; import ampc")
            except Exception as error:
                told = error
            print(told)
    """
    for first in ("", "import ampc"):
        text = textwrap.dedent(code).replace("{first}", first).replace("PATH", repr([p for p in sys.path if p]))
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and done.stdout.count("subinterpreter") == 2 and "not built" not in done.stdout, (done.stdout, done.stderr)
