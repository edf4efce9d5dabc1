"""Builds the extension ampc._C from csrc/ and bundles OpenBLAS beside it. Where nvcc is found, the CUDA kernels are
compiled too and embedded; where not, all else is built and `ampc info` says so. AMPC_CUDA=0 leaves them out.
AMPC_CUDA_CACHE names a folder that keeps them by content, so that several builds compile them once."""

import glob
import hashlib
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = os.path.dirname(os.path.abspath(__file__))
LIBS = os.path.join("ampc", "_libs")


def bundle_openblas(build_lib: str) -> None:
    """Copies the library of the build requirement scipy-openblas32 into the package; where there is
    none for this platform, products run on our own loops, and `ampc info` says so."""
    try:
        import scipy_openblas32
    except ImportError:
        print("ampc: no scipy-openblas32 on this platform: float32 products will use plain loops")
        return
    library = os.path.join(scipy_openblas32.get_lib_dir(), scipy_openblas32.get_library(fullname=True))
    target = os.path.join(build_lib, LIBS)
    os.makedirs(target, exist_ok=True)
    shutil.copy2(library, target)


# Turing, Ampere, Hopper and Blackwell. Each one's machine code runs on the later minor versions of its generation; what comes after
# the last that nvcc knows gets PTX.
ARCHITECTURES = ("75", "80", "90", "100")


def find_nvcc() -> "str | None":
    if os.environ.get("AMPC_CUDA") == "0":
        return None
    return shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def toolkit_headers(nvcc: str) -> "list[str]":
    """The toolkit's include folder, as nvcc itself says where it is."""
    said = subprocess.run([nvcc, "--dryrun", "x.cu"], capture_output=True, text=True).stderr
    tops = [line.split("TOP=", 1)[1].strip() for line in said.splitlines() if "TOP=" in line]
    return [path for top in tops[:1] if os.path.isdir(path := os.path.join(top, "include"))]


def says(nvcc: str, *options: str) -> str:
    return subprocess.run([nvcc, *options], capture_output=True, text=True, check=True).stdout


def nvcc_flags(nvcc: str) -> "list[str]":
    """Those that this nvcc knows: the newest architecture and the tightest compression are of CUDA 12.8."""
    known = says(nvcc, "--list-gpu-arch").split()
    compress = "--compress-mode=size" if "compress-mode" in says(nvcc, "--help") else "-Xfatbin=-compress-all"
    numbers = [n for n in ARCHITECTURES if f"compute_{n}" in known]
    machine = [f"arch=compute_{n},code=sm_{n}" for n in numbers]
    later = f"arch=compute_{numbers[-1]},code=compute_{numbers[-1]}"
    return ["-fatbin", "-std=c++17", "-O3", compress, *(part for a in (*machine, later) for part in ("-gencode", a))]


def toolkit_version(nvcc: str) -> int:
    """As the driver counts: 13000 is CUDA 13.0."""
    major, minor = says(nvcc, "--version").split("release ")[1].split(",")[0].split(".")
    return int(major) * 1000 + int(minor) * 10


def compile_kernels(nvcc: str) -> "str | None":
    """A folder of fat binaries, one a .cu file, kept until a source changes; None when nvcc fails."""
    sources = sorted(glob.glob("csrc/cuda/*.cu"))
    parts = sorted(glob.glob("csrc/cuda/*.cuh") + glob.glob("csrc/*/*.h") + glob.glob("csrc/*/*.def"))
    flags = nvcc_flags(nvcc)
    digest = hashlib.sha256((says(nvcc, "--version") + repr(flags)).encode())
    for path in sources + parts:
        with open(path, "rb") as f:
            digest.update(f.read())
    folder = os.path.join(os.environ.get("AMPC_CUDA_CACHE") or os.path.join(HERE, "build", "cuda"), digest.hexdigest()[:16])
    os.makedirs(folder, exist_ok=True)

    def one(source: str) -> "tuple[str, int, str]":
        target = os.path.join(folder, os.path.splitext(os.path.basename(source))[0] + ".fatbin")
        if os.path.exists(target):
            return source, 0, ""
        done = subprocess.run([nvcc, *flags, "-o", target + ".tmp", source], capture_output=True, text=True)
        if done.returncode == 0:
            os.replace(target + ".tmp", target)
        return source, done.returncode, done.stdout + done.stderr

    begin = time.monotonic()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(one, sources))
    failed = [(source, text) for source, code, text in results if code]
    for source, text in failed:
        print(f"ampc: nvcc failed on {source}, so this build has no GPU code:\n{text}", file=sys.stderr)
    print(f"ampc: CUDA kernels ready in {time.monotonic() - begin:.0f} s")
    return None if failed else folder


class Build(build_ext):
    """Compiles the sources side by side; they are independent."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if sys.platform == "win32" and not self.compiler:
            self.compiler = "mingw32"  # the core is written for GCC's and clang's vectors; CC names the compiler

    def build_extensions(self) -> None:
        nvcc = find_nvcc()
        images = compile_kernels(nvcc) if nvcc else None
        for extension in self.extensions:
            if nvcc:  # the real headers are compared with ours
                extension.include_dirs += toolkit_headers(nvcc)
            if images:
                extension.define_macros += [("AC_CUDA_IMAGES", f'"{images}"'), ("AC_CUDA_TOOLKIT", str(toolkit_version(nvcc)))]
        if not nvcc:
            print("ampc: no nvcc, so this build has no GPU code; all else works")
        compile_some = self.compiler.compile

        def compile_all(sources, **options):
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                parts = pool.map(lambda s: compile_some([s], **options), sources)
                return [o for part in parts for o in part]

        self.compiler.compile = compile_all
        super().build_extensions()
        bundle_openblas(self.build_lib)

    def copy_extensions_to_source(self) -> None:
        super().copy_extensions_to_source()
        bundle_openblas(HERE)


DEBUG = os.environ.get("AMPC_DEBUG")  # e.g. "-fsanitize=address -g -O1"; without it there is no debug information, half of the wheel
FLAGS = ["-std=c11", "-O3", "-g0", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fvisibility=hidden",
         "--param", "max-unswitch-insns=1000"]  # GELU's two formulas get a loop each, not both in one
DEFINES = [("_GNU_SOURCE", None)] if sys.platform.startswith("linux") else []

core = Extension(
    "ampc._C",
    sources=sorted(glob.glob("csrc/*/*.c")),
    depends=sorted(glob.glob("csrc/*/*.h") + glob.glob("csrc/*/*.def") + glob.glob("csrc/*/*.inc")
                   + glob.glob("csrc/cuda/*.cu*")),
    include_dirs=[numpy.get_include()],
    define_macros=DEFINES,
    extra_compile_args=FLAGS + (DEBUG.split() if DEBUG else []),
    extra_link_args=["-ldl", "-lm", "-lpthread"] + (DEBUG.split() if DEBUG else []),
)

setup(ext_modules=[core], cmdclass={"build_ext": Build})
