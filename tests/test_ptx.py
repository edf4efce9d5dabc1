"""The GPU that runs nvcc's PTX (tests/cuda_ptx): it refuses what it does not know, computes as PTX is defined, and sees the mistakes it is for."""

import ctypes
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HERE, SIMULATORS, build_simulator
from cuda_ptx.__main__ import translate
from cuda_ptx.parse import NotUnderstood

pytestmark = pytest.mark.skipif(not shutil.which("make") or not shutil.which("g++"), reason="needs make and g++")
on_ptx = pytest.mark.skipif(Path(os.environ.get("AMPC_CUDA_LIBS", "")).name != SIMULATORS["ptx"], reason="needs --device ptx")

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 shared[];\n"


def kernel(name, body):
    """Of one argument, an address, in %rd0; %r0 is the thread."""
    return f""".visible .entry {name}(
    .param .align 8 .b8 {name}_param_0[8]
)
{{
    .reg .pred %p<4>; .reg .b16 %rs<8>; .reg .b32 %r<16>; .reg .f32 %f<8>; .reg .b64 %rd<8>; .reg .f64 %fd<8>;
    .local .align 8 .b8 depot[8];
    ld.param.u64 %rd0, [{name}_param_0];
    mov.u32 %r0, %tid.x;
    {body}
    ret;
}}
"""


# -- what is refused ------------------------------------------------------------------------------------------------------


REFUSED = {
    "an instruction": "frobnicate.s32 %r1, %r0;",
    "a modifier": "add.sat.s32 %r1, %r0, %r0;",
    "a rounding": "add.rp.f32 %f1, %f0, %f0;",
    "a space": "ld.const.u32 %r1, [%rd0];",
    "a register": "mov.u32 %r1, %r99;",
    "an address": "ld.global.u32 %r1, [%rd0+%rd1];",
    "a symbol": "mov.u64 %rd1, elsewhere;",
    "too few operands": "fma.rn.f32 %f1, %f0, %f0;",
    "a barrier of some threads": "bar.sync 1;",
    "a function of another file": "call.uni vprintf, ();",
    "a directive": ".branchtargets here, there;",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_known_is_refused(what, tmp_path):
    (tmp_path / "a.ptx").write_text(HEAD + kernel("k", REFUSED[what]))
    with pytest.raises(NotUnderstood, match=re.escape("line 13, in k: " + REFUSED[what].rstrip(";"))):
        translate(tmp_path / "a.ptx", tmp_path)
    assert not list(tmp_path.glob("*.cpp"))


def test_the_program_says_what_it_refuses(tmp_path):
    (tmp_path / "a.ptx").write_text(HEAD + kernel("k", "frobnicate.s32 %r1, %r0;"))
    done = subprocess.run([sys.executable, "-m", "cuda_ptx", str(tmp_path / "a.ptx"), str(tmp_path)], cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 1 and "a.ptx: not translated: line 13, in k: frobnicate" in done.stderr


# -- kernels by hand --------------------------------------------------------------------------------------------------------


def built(folder, texts, *variables):
    """A GPU that has the kernels of these PTX files and no others, made with these variables of make."""
    (folder / "80").mkdir(parents=True)
    for name, text in texts.items():
        (folder / "80" / f"{name}.ptx").write_text(text)
    ptx = " ".join(str(folder / "80" / f"{name}.ptx") for name in texts)
    subprocess.run(["make", "-s", "-j2", "-C", str(HERE / SIMULATORS["ptx"]), f"OUT={folder}", "ARCH=80", f"PTX={ptx}", f"PYTHON={sys.executable}", *variables],
                   check=True)
    return folder


class Gpu:
    """The driver's functions, called as ampc calls them."""

    def __init__(self, folder):
        self.lib = ctypes.CDLL(str(folder / "libcuda.so.1"))
        context = ctypes.c_void_p()
        self.room = ctypes.c_ulonglong()
        for failed in (self.lib.cuInit(0), self.lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), self.lib.cuCtxPushCurrent_v2(context),
                       self.lib.cuMemAlloc_v2(ctypes.byref(self.room), 4096)):
            assert not failed

    def run(self, name, threads=1, shared=0):
        """What the kernel left at its argument, 8 bytes; or what was wrong in it, as text."""
        function, out, text = ctypes.c_void_p(), ctypes.create_string_buffer(8), ctypes.c_char_p()
        assert not self.lib.cuModuleGetFunction(ctypes.byref(function), None, name.encode())
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(self.room))
        assert not self.lib.cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, shared, None, arguments, None)
        failed = self.lib.cuMemcpyDtoHAsync_v2(out, self.room, ctypes.c_size_t(8), None)
        if not failed:
            return int.from_bytes(out.raw, "little")
        self.lib.cuGetErrorString(failed, ctypes.byref(text))
        said = text.value.decode()
        self.lib.ampc_simulator(b"forget_error", ctypes.c_longlong(0))
        return said


def bits(x, kind):
    return int.from_bytes(struct.pack("<" + kind, x), "little")


def f32(x):
    return f"0f{bits(x, 'f'):08X}"


def f64(x):
    return f"0d{bits(x, 'd'):016X}"


NAN32, NAN64, TINY = "0f7FC00000", "0d7FF8000000000000", 2.0**-30
# %rd1 after the instructions: what PTX defines and C++ does not, or what is easily wrong.
COMPUTED = {
    "shifts beyond the width": ("mov.u32 %r1, -5; shr.s32 %r2, %r1, 40; shl.b32 %r3, %r1, 32; mov.b64 %rd1, {%r2, %r3};", 0x00000000_FFFFFFFF),
    "a shift of a wide number": ("mov.u64 %rd2, 1; shl.b64 %rd1, %rd2, 63;", 1 << 63),
    "bits put into others": ("mov.u32 %r1, 0xAB; mov.u32 %r2, 0x11223344; bfi.b32 %r3, %r1, %r2, 8, 8; cvt.u64.u32 %rd1, %r3;", 0x1122AB44),
    "no bits put into others": ("mov.u32 %r1, 0xAB; mov.u32 %r2, 0x11223344; bfi.b32 %r3, %r1, %r2, 8, 0; cvt.u64.u32 %rd1, %r3;", 0x11223344),
    "bits taken out": ("mov.u32 %r1, 0x11223344; bfe.u32 %r2, %r1, 8, 8; bfe.u32 %r3, %r1, 24, 32; mov.b64 %rd1, {%r2, %r3};", 0x11_00000033),
    "a pair shifted": ("mov.u32 %r1, 0x80000001; mov.u32 %r2, 6; shf.l.wrap.b32 %r3, %r1, %r2, 33; shf.r.wrap.b32 %r4, %r1, %r2, 1; mov.b64 %rd1, {%r3, %r4};",
                       0x40000000_0000000D),
    "bytes in another order": ("mov.u32 %r1, 0x33228111; mov.u32 %r2, 0x77665544; prmt.b32 %r3, %r1, %r2, 0x9047; cvt.u64.u32 %rd1, %r3;", 0xFF114477),
    "leading zeros": ("mov.u64 %rd2, 0x10; clz.b64 %r1, %rd2; clz.b32 %r2, 0; mov.b64 %rd1, {%r1, %r2};", 32 << 32 | 59),
    "a product of 128 bits": ("mul.hi.u64 %rd1, -1, -1;", 2**64 - 2),
    "a signed product's upper half": ("mov.u32 %r1, -2; mul.hi.s32 %r2, %r1, 3; mul.hi.u32 %r3, %r1, 3; mov.b64 %rd1, {%r2, %r3};", 2 << 32 | 0xFFFFFFFF),
    "a wide product and sum": ("mov.u32 %r1, -1; mov.u64 %rd2, 5; mad.wide.u32 %rd1, %r1, %r1, %rd2;", (2**32 - 1) ** 2 + 5),
    "sums with carry": ("mov.u32 %r1, -1; add.cc.u32 %r2, %r1, 1; addc.u32 %r3, %r1, 0; mov.b64 %rd1, {%r2, %r3};", 0),
    "differences with borrow": ("mov.u32 %r1, 0; sub.cc.u32 %r2, %r1, 1; subc.u32 %r3, 5, 0; mov.b64 %rd1, {%r2, %r3};", 4 << 32 | 0xFFFFFFFF),
    "products with carry": ("mov.u32 %r1, -1; mad.lo.cc.u32 %r2, %r1, %r1, %r1; madc.hi.u32 %r3, %r1, %r1, 0; mov.b64 %rd1, {%r2, %r3};",
                            ((2**32 - 1) ** 2 + 2**32 - 1) % 2**64),
    "the smallest integer by -1": ("mov.u32 %r1, 0x80000000; div.s32 %r2, %r1, -1; rem.s32 %r3, %r1, -1; mov.b64 %rd1, {%r2, %r3};", 0x80000000),
    "the parts of a register": ("mov.u64 %rd2, 0x1111222233334444; mov.b64 {%r1, %r2}, %rd2; mov.b32 {%rs1, %rs2}, %r1; mov.b32 %r3, {%rs2, %rs1};"
                                "mov.b64 %rd1, {%r3, %r2};", 0x1111222244443333),
    "the sign of a narrow number": ("mov.u16 %rs1, 0x00FE; cvt.s32.s8 %r1, %rs1; cvt.u32.u8 %r2, %rs1; mov.b64 %rd1, {%r1, %r2};", 0xFE_FFFFFFFE),
    "the sign of narrow memory": ("mov.u64 %rd2, depot; st.local.u32 [%rd2+4], 0x80; ld.local.s8 %r1, [%rd2+4]; ld.local.u8 %r2, [%rd2+4];"
                                  "mov.b64 %rd1, {%r1, %r2};", 0x80_FFFFFF80),
    "a guard": ("mov.u64 %rd1, 1; setp.eq.s32 %p1, %r0, 1; @%p1 mov.u64 %rd1, 2; @!%p1 add.s64 %rd1, %rd1, 4;", 5),
    "a selection": ("setp.lt.s32 %p1, -1, 0; setp.lt.u32 %p2, -1, 0; selp.u64 %rd2, 1, 0, %p1; selp.u64 %rd3, 2, 0, %p2; or.b64 %rd1, %rd2, %rd3;", 1),
    "a nan as an integer": (f"cvt.rzi.s32.f32 %r1, {NAN32}; cvt.rzi.s32.f64 %r2, {NAN64}; mov.b64 %rd1, {{%r1, %r2}};", 1 << 63),
    "a nan as a wide integer": (f"cvt.rzi.s64.f32 %rd1, {NAN32};", 1 << 63),
    "a large number as an integer": (f"cvt.rzi.s32.f32 %r1, {f32(1e20)}; cvt.rzi.u32.f32 %r2, {f32(-1e20)}; mov.b64 %rd1, {{%r1, %r2}};", 0x7FFFFFFF),
    "the nearest integer": (f"cvt.rni.s32.f32 %r1, {f32(2.5)}; cvt.rni.s32.f32 %r2, {f32(-3.5)}; mov.b64 %rd1, {{%r1, %r2}};", 0xFFFFFFFC_00000002),
    "floor and ceiling": (f"cvt.rmi.f32.f32 %f1, {f32(-1.5)}; cvt.rpi.f32.f32 %f2, {f32(-1.5)}; mov.b64 %rd1, {{%f1, %f2}};", bits(-1, "f") << 32 | bits(-2, "f")),
    "saturation": (f"cvt.sat.f32.f32 %f1, {NAN32}; cvt.sat.f32.f32 %f2, {f32(3)}; mov.b64 %rd1, {{%f1, %f2}};", bits(1, "f") << 32),
    "half precision": (f"cvt.rn.f16.f32 %rs1, {f32(1 + 2**-11)}; cvt.f32.f16 %f1, %rs1; mov.b32 %r1, %f1; cvt.u64.u32 %rd1, %r1;", bits(1, "f")),
    "a sum rounded down": (f"fma.rm.f32 %f1, {f32(1)}, {f32(1)}, {f32(-TINY)}; fma.rm.f32 %f2, {f32(1)}, {f32(1)}, {f32(TINY)};"
                           "mov.b64 %rd1, {%f1, %f2};", bits(1, "f") << 32 | (bits(1, "f") - 1)),
    "a sum rounded to 0": (f"add.rz.f32 %f1, {f32(-1)}, {f32(TINY)}; fma.rz.f32 %f2, {f32(-1)}, {f32(1)}, {f32(-TINY)};"
                           "mov.b64 %rd1, {%f1, %f2};", bits(-1, "f") << 32 | (bits(-1, "f") - 1)),
    "a product rounded to 0": (f"mul.rz.f32 %f1, {f32(1 + 2**-23)}, {f32(1.5)}; mul.rz.f32 %f2, {f32(-3)}, {f32(2)}; mov.b64 %rd1, {{%f1, %f2}};",
                               bits(-6, "f") << 32 | bits(1.5 + 2**-23, "f")),
    "a tie below what a double sees": (f"fma.rm.f32 %f1, {f32(1)}, {f32(1)}, {f32(-2.0**-100)}; mov.b32 %r1, %f1; cvt.u64.u32 %rd1, %r1;", bits(1, "f") - 1),
    "one rounding of a product and sum": (f"fma.rn.f64 %fd1, {f64(1 + 2**-52)}, {f64(1 - 2**-52)}, {f64(-1)}; mov.b64 %rd1, %fd1;", bits(-2.0**-104, "d")),
    "an approximate reciprocal": (f"rcp.approx.ftz.f64 %fd1, {f64(3)}; mov.b64 %rd1, %fd1;", bits(1 / 3, "d") >> 32 << 32),
    "a subnormal number": (f"ex2.approx.ftz.f32 %f1, {f32(-140)}; ex2.approx.f32 %f2, {f32(-140)}; mov.b64 %rd1, {{%f1, %f2}};", bits(2.0**-140, "f") << 32),
    "a minimum beside nan": (f"min.f32 %f1, {NAN32}, {f32(2)}; max.f32 %f2, {f32(0)}, {f32(-0.0)}; mov.b64 %rd1, {{%f1, %f2}};", bits(2, "f")),
    "comparisons of nan": (f"setp.ltu.f64 %p1, {NAN64}, {f64(1)}; setp.ne.f64 %p2, {NAN64}, {f64(1)}; setp.num.f64 %p3, {NAN64}, {f64(1)};"
                           "selp.u64 %rd1, 1, 0, %p1; @%p2 add.s64 %rd1, %rd1, 2; @%p3 add.s64 %rd1, %rd1, 4;", 1),
    "a sign": (f"copysign.f64 %fd1, {f64(-0.0)}, {f64(3)}; mov.b64 %rd1, %fd1;", bits(-3, "d")),
    "memory as a generic address": ("mov.u64 %rd2, shared; cvta.shared.u64 %rd3, %rd2; mov.u64 %rd1, 7; st.u64 [%rd3+8], %rd1; cvta.to.shared.u64 %rd4, %rd3;"
                                    "ld.shared.u64 %rd1, [%rd4+8];", 7),
    "an atomic sum": ("mov.u32 %r2, shared; st.shared.u32 [%r2], 5; atom.shared.add.u32 %r3, [%r2], 2; ld.shared.u32 %r4, [%r2]; mov.b64 %rd1, {%r3, %r4};", 7 << 32 | 5),
    "bits that are set": ("mov.u32 %r1, -1; popc.b32 %r2, %r1; mov.u32 %r3, 0x80010; popc.b32 %r4, %r3; mov.b64 %rd1, {%r2, %r4};", 2 << 32 | 32),
    "a copy with zeros behind it": ("mov.u64 %rd2, 0x1122334455667788; st.global.u64 [%rd0], %rd2; mov.u32 %r1, 4; mov.u32 %r2, 16;"
                                    "cp.async.cg.shared.global [%r2], [%rd0], 16, %r1; cp.async.commit_group; cp.async.wait_group 0; ld.shared.u64 %rd1, [%r2];", 0x55667788),
    "an atomic sum whose former value nobody wants": ("mov.u32 %r2, shared; st.shared.u32 [%r2], 5; red.shared.add.u32 [%r2], 2; ld.shared.u32 %r4, [%r2]; cvt.u64.u32 %rd1, %r4;", 7),
    "logarithms": (f"lg2.approx.f32 %f1, {f32(2.0**-140)}; lg2.approx.ftz.f32 %f2, {f32(8)}; mov.b64 %rd1, {{%f1, %f2}};", bits(3, "f") << 32 | bits(-140, "f")),
    "an atomic exchange": ("st.global.u32 [%rd0], 1; atom.global.cas.b32 %r1, [%rd0], 1, 9; atom.global.cas.b32 %r2, [%rd0], 1, 5; mov.b64 %rd1, {%r1, %r2};", 9 << 32 | 1),
}

# Of tensor cores, by a warp: %rd1 of lane 13, which has row 3, columns 2 and 3 of a fragment.
MATRICES = ("shl.b32 %r1, %r0, 4; shl.b32 %r2, %r0, 3; mad.lo.u32 %r3, %r2, 65537, 65536; add.u32 %r4, %r3, 131074; add.u32 %r5, %r4, 131074; add.u32 %r6, %r5, 131074;"
            "st.shared.v4.u32 [%r1], {%r3, %r4, %r5, %r6}; bar.warp.sync -1;")  # of 8 x 8 values, numbered
OPERANDS = ("and.b32 %r1, %r0, 3; shl.b32 %r1, %r1, 1; shr.u32 %r2, %r0, 2; mad.lo.u32 %r6, %r2, 16, %r1; mov.f32 %f0, 0f3F000000; mov.u32 %r9, 0;"
            "cvt.rn.f32.u32 %f1, %r6; add.f32 %f2, %f1, 0f3F800000; add.f32 %f3, %f1, 0f41000000; add.f32 %f4, %f2, 0f41000000;"
            "setp.eq.s32 %p1, %r2, %r1; selp.b32 %r3, {one}, 0, %p1; add.u32 %r4, %r1, 1; setp.eq.s32 %p2, %r2, %r4; selp.b32 %r5, {one}0000, 0, %p2; or.b32 %r3, %r3, %r5;"
            "cvt.rn.{half}x2.f32 %r7, %f2, %f1; cvt.rn.{half}x2.f32 %r8, %f4, %f3;")  # the identity in %r3, and in %r7 and %r8 row k, column n, as 16 n + k
LARGE = "mma.sync.aligned.m16n8k16.row.col.f32.{half}.{half}.f32 {{%f4, %f5, %f6, %f7}}, {{%r3, %r9, %r9, %r3}}, {{%r7, %r8}}, {{%f0, %f0, %f0, %f0}}; mov.b64 %rd1, {{%f5, %f6}};"
OF_WARPS = {
    "matrices from memory, as they lie and turned": (MATRICES + "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r7, %r8, %r9, %r10}, [%r1];"
                                                     "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r11, %r12, %r13, %r14}, [%r1]; mov.b64 %rd1, {%r9, %r13};",
                                                     155 << 48 | 147 << 32 | 155 << 16 | 154),
    "a product of float16": (OPERANDS.format(one="0x3C00", half="f16") + LARGE.format(half="f16"), bits(43.5, "f") << 32 | bits(51.5, "f")),
    "a product of bfloat16": (OPERANDS.format(one="0x3F80", half="bf16") + LARGE.format(half="bf16"), bits(43.5, "f") << 32 | bits(51.5, "f")),
    "a product of half the depth": (OPERANDS.format(one="0x3C00", half="f16") + "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f4, %f5, %f6, %f7}, {%r3, %r9}, {%r7},"
                                    "{%f0, %f0, %f0, %f0}; mov.b64 %rd1, {%f5, %f6};", bits(0.5, "f") << 32 | bits(51.5, "f")),
}

PLACE = "shl.b32 %r1, %r0, 2; xor.b32 %r2, %r1, {other}; "
WRITE, READ = "st.shared.u32 [%r1], %r0; ", "ld.shared.u32 %r3, [%r2]; "
SHUFFLE = "shfl.sync.bfly.b32 %r4|%p1, %r0, 1, 31, -1; "
VOTE = "vote.sync.ballot.b32 %r2, %p1"
NEIGHBOUR, OTHER_WARP = PLACE.format(other=4), PLACE.format(other=128)
# 16 bytes a thread
COPY, COPIED = "shl.b32 %r1, %r0, 4; xor.b32 %r2, %r1, 16; cp.async.cg.shared.global [%r1], [%rd0], 16; ", "ld.shared.u32 %r3, [%r2]; "
# Of 64 threads, each with four bytes of shared memory, or 16: what is wrong in them, or None.
WATCHED = {
    "a value of a neighbour": (NEIGHBOUR + WRITE + READ, "races"),
    "behind the warp's barrier": (NEIGHBOUR + WRITE + "bar.warp.sync -1; " + READ, None),
    "behind a shuffle": (NEIGHBOUR + WRITE + SHUFFLE + READ, "races"),
    "of another warp behind the warp's barrier": (OTHER_WARP + WRITE + "bar.warp.sync -1; " + READ, "races"),
    "of another warp behind the block's barrier": (OTHER_WARP + WRITE + "bar.sync 0; " + READ, None),
    "overwritten while a neighbour reads": (NEIGHBOUR + READ + WRITE, "races"),
    "overwritten behind a barrier": (NEIGHBOUR + READ + "bar.sync 0; " + WRITE, None),
    "written by all": ("mov.u32 %r1, 0; " + WRITE, "races"),
    "added by all": ("mov.u32 %r1, 0; atom.shared.add.u32 %r3, [%r1], 1; ", None),
    "added by all and read": ("mov.u32 %r1, 0; atom.shared.add.u32 %r3, [%r1], 1; ld.shared.u32 %r4, [%r1]; ", "races"),
    "read by all": ("mov.u32 %r1, 0; ld.shared.u32 %r4, [%r1]; ", None),
    "read by all, then overwritten by one": ("mov.u32 %r1, 0; ld.shared.u32 %r4, [%r1]; bar.warp.sync -1; setp.eq.s32 %p1, %r0, 33; @%p1 st.shared.u32 [%r1], 1; ",
                                             "races"),
    "one's own": (NEIGHBOUR + WRITE + "ld.shared.u32 %r3, [%r1]; " + WRITE, None),
    "by its generic address": (NEIGHBOUR + WRITE + "cvt.u64.u32 %rd2, %r2; cvta.shared.u64 %rd3, %rd2; ld.u32 %r3, [%rd3]; ", "races"),
    "a copy that was waited for": (COPY + "cp.async.commit_group; cp.async.wait_group 0; bar.sync 0; " + COPIED, None),
    "a copy of one's own": (COPY + "cp.async.commit_group; cp.async.wait_group 0; ld.shared.u32 %r3, [%r1]; ", None),
    "a copy that nobody waited for": (COPY + "cp.async.commit_group; bar.sync 0; " + COPIED, "before a copy that writes there was waited for"),
    "a copy in no group": (COPY + "cp.async.wait_group 0; bar.sync 0; " + COPIED, "before a copy that writes there was waited for"),
    "a copy in a group that may go on": (COPY + "cp.async.commit_group; cp.async.wait_group 1; bar.sync 0; " + COPIED, "before a copy that writes there was waited for"),
    "a group behind the one that was waited for": (COPY + "cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 1; bar.sync 0; " + COPIED, None),
    "a copy without a barrier": (COPY + "cp.async.commit_group; cp.async.wait_group 0; " + COPIED, "races"),
    "a copy to where a neighbour reads": (f"shl.b32 %r1, %r0, 4; xor.b32 %r2, %r1, 16; {COPIED}" + COPY, "before a copy that writes there was waited for"),
    "a copy to an odd word": ("mov.u32 %r1, 4; cp.async.cg.shared.global [%r1], [%rd0], 16; ", "cp.async.cg.shared.global is misaligned: 16 bytes"),
    "two words at an odd one": ("mov.u64 %rd2, 4; add.s64 %rd2, %rd0, %rd2; ld.global.v2.u32 {%r3, %r4}, [%rd2]; ", "ld.global.v2.u32 is misaligned: 8 bytes"),
    "a word at an odd byte": ("st.shared.u16 [%r0], 1; ", "st.shared.u16 is misaligned"),
    "matrices of other threads": ("shl.b32 %r1, %r0, 4; xor.b32 %r2, %r1, 16; st.shared.u32 [%r1], %r0; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r4, %r5, %r6}, [%r2]; ", "races"),
    "matrices behind the warp's barrier": ("shl.b32 %r1, %r0, 4; xor.b32 %r2, %r1, 16; st.shared.u32 [%r1], %r0; bar.warp.sync -1;"
                                           "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r4, %r5, %r6}, [%r2]; ", None),
    "matrices at an odd word": ("mov.u32 %r1, 4; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r4, %r5, %r6}, [%r1]; ", "b16 is misaligned: 16 bytes"),
    "beyond the launch's memory": ("ld.shared.u32 %r3, [256]; ", "outside the shared memory"),
    "before the launch's memory": ("mov.u32 %r1, 0; ld.shared.u32 %r3, [%r1+-4]; ", "outside the shared memory"),
}


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    computed = [kernel(f"computed_{i}", code + "st.global.u64 [%rd0], %rd1;") for i, (code, _) in enumerate(COMPUTED.values())]
    of_warps = [kernel(f"of_warps_{i}", code + "setp.eq.s32 %p3, %r0, 13; @%p3 st.global.u64 [%rd0], %rd1;") for i, (code, _) in enumerate(OF_WARPS.values())]
    watched = [kernel(f"watched_{i}", code) for i, (code, _) in enumerate(WATCHED.values())]
    watched.append(kernel("voted", f"and.b32 %r1, %r0, 5; setp.eq.s32 %p1, %r1, 1; {VOTE}, -1; cvt.u64.u32 %rd1, %r2; st.global.u64 [%rd0], %rd1;"))
    watched.append(kernel("voted_in_part", f"setp.eq.s32 %p1, %r0, 1; {VOTE}, 3;"))
    endless = kernel("endless", "bra.uni $L1;\n$L1:\n").replace("    ret;\n", "")
    text = HEAD + "".join(computed + of_warps + watched) + endless
    # A name of its own, or ampc in this process would take it for the machine's GPU.
    return Gpu(built(tmp_path_factory.mktemp("ptx"), {"by_hand": text}, "SONAME=libptx_by_hand.so"))


@pytest.mark.cpu
@pytest.mark.parametrize("what", COMPUTED)
def test_what_instructions_compute(gpu, what):
    i = list(COMPUTED).index(what)
    got = gpu.run(f"computed_{i}", shared=64)
    assert got == COMPUTED[what][1], got if isinstance(got, str) else hex(got)


@pytest.mark.cpu
@pytest.mark.parametrize("what", OF_WARPS)
def test_what_instructions_of_a_warp_compute(gpu, what):
    got = gpu.run(f"of_warps_{list(OF_WARPS).index(what)}", threads=32, shared=512)
    assert got == OF_WARPS[what][1], got if isinstance(got, str) else hex(got)


@pytest.mark.cpu
@pytest.mark.parametrize("order", [0, 1, 5])
@pytest.mark.parametrize("what", WATCHED)
def test_mistakes_in_memory(gpu, what, order):
    """They are seen in whatever order the threads come."""
    gpu.lib.ampc_simulator(b"order", ctypes.c_longlong(order))
    copies = re.search("cp.async|ldmatrix", WATCHED[what][0])
    said, wrong = gpu.run(f"watched_{list(WATCHED).index(what)}", threads=64, shared=1024 if copies else 256), WATCHED[what][1]
    assert wrong in said if wrong else not isinstance(said, str)


@pytest.mark.cpu
def test_votes_of_a_warp(gpu):
    assert gpu.run("voted", threads=32) == 0x0A0A0A0A
    assert "a vote of a part of a warp" in gpu.run("voted_in_part", threads=32)


@pytest.mark.cpu
def test_a_function_that_does_not_return(gpu):
    """So nvcc ends a function where it calls one of the host, with a warning."""
    assert "endless: a function ends without a return" in gpu.run("endless")


@pytest.mark.cpu
def test_a_translation_leaves_those_of_other_files_alone(tmp_path):
    """Of the files of an earlier translation only its own go, not those of a file whose name begins alike."""
    (tmp_path / "a.ptx").write_text(HEAD + kernel("k", ""))
    for name in ("a_0.cpp", "a_1.cpp", "a_back_0.cpp"):
        (tmp_path / name).write_text("")
    translate(tmp_path / "a.ptx", tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.cpp")) == ["a_0.cpp", "a_back_0.cpp"]


# -- nvcc's own -----------------------------------------------------------------------------------------------------------------


SCAN = """
import ampc
x = ampc.ones(3, 5000, dtype=ampc.float64, device="cpu").cuda()
print(x.cumsum(1).cpu()[:, -1].tolist())
"""


@on_ptx
@pytest.mark.parametrize(("code", "instead", "says"), [
    ("", "", "[5000.0, 5000.0, 5000.0]"),
    (r"bar\.sync\s+0;", "", "races with another thread"),
    (r"(st\.shared\.f64\s+\[%r\d+)\]", r"\1+4]", "st.shared.f64 is misaligned"),
], ids=["as it is", "without barriers", "off by four bytes"])
def test_a_kernel_that_was_spoilt_by_hand(tmp_path, code, instead, says):
    text = (Path(os.environ["AMPC_CUDA_LIBS"]) / "80" / "scan.ptx").read_text()
    spoilt = re.sub(code, instead, text)
    assert (spoilt != text) == bool(code)
    folder = built(tmp_path / "gpu", {"scan": spoilt})
    done = subprocess.run([sys.executable, "-c", SCAN], capture_output=True, text=True, env={**os.environ, "AMPC_CUDA_LIBS": str(folder)})
    assert says in done.stdout + done.stderr


CONVOLVE = """
import ampc
ampc.backends.cudnn.enabled = False
x, w = ampc.ones(1, 16, 8, 8, device="cpu").half().cuda(), ampc.ones(8, 16, 1, 1, device="cpu").half().cuda()
print(ampc.nn.functional.conv2d(x, w).cpu().unique().tolist())
"""


@on_ptx
@pytest.mark.parametrize(("code", "instead", "says"), [
    ("", "", "[16.0]"), (r"cp\.async\.wait_group\s+0;", "", "before a copy that writes there was waited for"),
    (r"cp\.async\.commit_group;", "", "before a copy that writes there was waited for"),
], ids=["as it is", "without waiting", "without a group"])
def test_copies_that_nobody_waits_for(tmp_path, code, instead, says):
    text = (Path(os.environ["AMPC_CUDA_LIBS"]) / "80" / "conv.ptx").read_text()
    spoilt = re.sub(code, instead, text)
    assert (spoilt != text) == bool(code)
    folder = built(tmp_path / "gpu", {"conv": spoilt})
    done = subprocess.run([sys.executable, "-c", CONVOLVE], capture_output=True, text=True, env={**os.environ, "AMPC_CUDA_LIBS": str(folder)})
    assert says in done.stdout + done.stderr


@on_ptx
@pytest.mark.skipif(not shutil.which("ptxas"), reason="needs ptxas")
@pytest.mark.parametrize("architecture", ["80", "90", "100", "120"])
def test_convolutions_keep_their_tiles_in_registers(architecture, tmp_path):
    """A tile's sums are 256 bytes of a thread. What ptxas spills beside them is to stay small: a change that makes a tile larger would show here."""
    source = Path(os.environ["AMPC_CUDA_LIBS"]) / "80" / "conv.ptx"
    done = subprocess.run(["ptxas", "-v", f"-arch=sm_{architecture}", "-o", str(tmp_path / "conv.cubin"), str(source)], capture_output=True, text=True)
    if "is not defined for option" in done.stderr:
        pytest.skip("this toolkit does not know the architecture")
    spills = dict(re.findall(r"Compiling entry function '(ac_convolve\w*16)'.*?(\d+) bytes spill stores", done.stderr, re.S))
    assert done.returncode == 0 and len(spills) == 6, done.stderr
    assert all(int(stored) <= 128 for stored in spills.values()), spills


@on_ptx
def test_both_sides_have_the_same_arguments():
    """The structs are as large to nvcc as to the host's compiler, which the kernels of tests/cuda_sim ask."""
    def sizes(folder):
        path = folder / "libcuda.so.1"
        names = {name.decode() for name in re.findall(rb"sim_bytes_(\w+)", path.read_bytes())}
        return {name: ctypes.c_size_t.in_dll(ctypes.CDLL(str(path)), f"sim_bytes_{name}").value for name in names}

    ptx, host = sizes(Path(os.environ["AMPC_CUDA_LIBS"])), sizes(build_simulator("sim"))
    assert ptx == host and len(ptx) > 400
