"""Builds the extension ampc._C from csrc/ and bundles OpenBLAS beside it. Where nvcc is found, the CUDA kernels are
compiled too, packed and embedded; where not, all else is built and `ampc info` says so. AMPC_CUDA=0 leaves them out, AMPC_CUDA=native
compiles them for this machine's GPUs alone. AMPC_CUDA_CACHE names a folder that keeps them by content, so that several builds
compile them once. What has not changed since the last build in this folder is not compiled again.

AMPC_BUILD names another set of objects, in a folder of its own: debug (the sanitizers, the core's assertions, warnings as errors), which
`make debug` and the C tests share, thread (the thread sanitizer) or coverage (gcov's counters)."""

import contextlib
import functools
import glob
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Iterable

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

try:
    import lzma
except ImportError:
    lzma = None  # GPU code is packed by it, when it is built, and unpacked when it is used

HERE = os.path.dirname(os.path.abspath(__file__))
LIBS = os.path.join("ampc", "_libs")


def bundle_openblas(build_lib: str) -> None:
    """Copies the library of the build requirement scipy-openblas32 into the package; where there is
    none for this platform, products run on our own loops, and `ampc info` says so."""
    try:
        import scipy_openblas32
    except ImportError:
        print("ampc: no scipy-openblas32 on this platform: float64 products will use plain loops")
        return
    library = os.path.join(scipy_openblas32.get_lib_dir(), scipy_openblas32.get_library(fullname=True))
    target = os.path.join(build_lib, LIBS)
    os.makedirs(target, exist_ok=True)
    shutil.copy2(library, target)
    texts = [f for f in importlib.metadata.files("scipy-openblas32") or [] if f.name.upper().startswith("LICENSE")]
    for text in texts:
        shutil.copy2(text.locate(), os.path.join(target, "LICENSE.txt"))
    if not texts:
        print("ampc: scipy-openblas32 lies here without its licence, which must go with OpenBLAS: do not distribute this build", file=sys.stderr)


# Turing, Ampere, Hopper, Blackwell of data centres and of desktops. Each one's machine code runs on the later minor versions of its
# generation; what comes after the last that nvcc knows gets PTX. Kernels differ only by whether bfloat16 has instructions, so there are two:
# of compute_75 for Turing, of compute_80 for all later.
ARCHITECTURES = ("75", "80", "90", "100", "120")
NVCC_FLAGS = ["-std=c++17", "-O3", "-Icsrc"]
PRESET = 7  # of xz: like 9 for what fits into its dictionary of 16 MiB, which whoever unpacks must have, too


def find_nvcc() -> "str | None":
    return shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def no_gpu_code() -> str:
    """Why a build leaves GPU code out, as `ampc info` reads it; '' where it has it."""
    if os.environ.get("AMPC_CUDA") == "0":
        return "left out"
    if not find_nvcc():
        return "no nvcc"
    if not lzma:
        return "no lzma"
    return "" if os.environ.get("AMPC_CUDA") != "native" or gpus_here() else "no GPU"


def says(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def note_gpu_code(build_lib: str, text: str) -> None:
    """Leaves it beside the libraries, where `ampc info` reads it."""
    folder = os.path.join(build_lib, LIBS)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "gpu_code.txt"), "w", encoding="ascii") as f:
        f.write(text + "\n")


def toolkit_headers(nvcc: str) -> "list[str]":
    """The toolkit's include folder, as nvcc itself says where it is."""
    said = subprocess.run([nvcc, "--dryrun", "x.cu"], capture_output=True, text=True).stderr
    tops = [line.split("TOP=", 1)[1].strip() for line in said.splitlines() if "TOP=" in line]
    return [path for top in tops[:1] if os.path.isdir(path := os.path.join(top, "include"))]


def gpus_here() -> "list[str]":
    """The architectures of this machine's GPUs that kernels can be compiled for, such as '89'."""
    try:
        said = says("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"AMPC_CUDA=native asks nvidia-smi which GPUs are here, and that fails: {error}\n"
                 "AMPC_CUDA=1 compiles for all GPUs, AMPC_CUDA=0 leaves GPU code out")
    found = {major + minor for major, minor in re.findall(r"(\d+)\.(\d+)", said)}
    return sorted((n for n in found if int(n) >= int(ARCHITECTURES[0])), key=int)


def architectures(nvcc: str) -> "list[str]":
    """Those to compile for: all that this nvcc knows, or with AMPC_CUDA=native those of this machine's GPUs. A GPU that nvcc does not know
    runs the PTX that comes with the newest."""
    listed = says(nvcc, "--list-gpu-arch").split()
    known = [n for n in ARCHITECTURES if f"compute_{n}" in listed]
    if os.environ.get("AMPC_CUDA") != "native":
        return known
    return sorted({n if f"compute_{n}" in listed else known[-1] for n in gpus_here()}, key=int)


def toolkit_version(nvcc: str) -> int:
    """As the driver counts: 13000 is CUDA 13.0."""
    major, minor = says(nvcc, "--version").split("release ")[1].split(",")[0].split(".")
    return int(major) * 1000 + int(minor) * 10


def included(path: str, found: "set[str]") -> "set[str]":
    """A source, and all of ours that it includes."""
    if path not in found:
        found.add(path)
        with open(path) as f:
            for name in re.findall(r'^ *#include "([^"]+)"', f.read(), re.M):
                included(os.path.join("csrc", name), found)
    return found


def digest_of(paths: "Iterable[str]", salt: str) -> str:
    digest = hashlib.sha256(salt.encode())
    for path in sorted(paths):
        with open(path, "rb") as f:
            digest.update(f.read())
    return digest.hexdigest()[:16]


def kept(target: str, make: "Callable[[str], None]") -> str:
    """A file of the cache, whose name says from what it is made; made where it is not there, whole or not at all."""
    if not os.path.exists(target):
        with tempfile.TemporaryDirectory(dir=os.path.dirname(target)) as folder:  # its own, whoever else fills the cache
            unfinished = os.path.join(folder, "made")
            make(unfinished)
            os.replace(unfinished, target)
    return target


def run_nvcc(nvcc: str, source: str, *arguments: str) -> None:
    done = subprocess.run([nvcc, *arguments, source], capture_output=True, text=True)
    if text := (done.stdout + done.stderr).strip():
        print(f"ampc: nvcc {'failed on' if done.returncode else 'about'} {source}:\n{text}", file=sys.stderr)
    done.check_returncode()


def pack(path: str, target: str) -> None:
    with open(path, "rb") as image, open(target, "wb") as f:
        f.write(lzma.compress(image.read(), preset=PRESET))


def images_of(nvcc: str, source: str, virtual: str, machines: "list[str]", cache: str) -> "list[str]":
    """The images of a .cu file, packed: machine code for each architecture, assembled from PTX, and the PTX. As lines for images.c."""
    name = os.path.splitext(os.path.basename(source))[0]
    stem = os.path.join(cache, f"{name}-{digest_of(included(source, set()), says(nvcc, '--version') + repr(NVCC_FLAGS))}")
    ptx = kept(f"{stem}.compute_{virtual}.ptx", lambda path: run_nvcc(nvcc, source, "-ptx", f"-arch=compute_{virtual}", *NVCC_FLAGS, "-o", path))

    def assembled(machine: str, path: str) -> None:
        run_nvcc(nvcc, ptx, "-cubin", f"-arch=sm_{machine}", "-o", path + ".cubin")
        pack(path + ".cubin", path)

    code = {f"CUBIN({name.upper()}, {n}": kept(f"{stem}.sm_{n}.xz{PRESET}", functools.partial(assembled, n)) for n in machines}
    code[f"PTX({name.upper()}, {virtual}"] = kept(f"{ptx}.xz{PRESET}", functools.partial(pack, ptx))
    return [f'{what}, "{os.path.basename(path)}")' for what, path in code.items()]


def compile_kernels(nvcc: str, wanted: "list[str]", cache: str) -> str:
    """The file that lists the images for csrc/cuda/images.c, without folders; its name changes when one of them does."""
    machines = {virtual: [n for n in wanted if (n == "75") == (virtual == "75")] for virtual in ("75", "80")}
    begin = time.monotonic()

    def one(job: "tuple[str, str]") -> "list[str]":
        source, virtual = job
        lines = images_of(nvcc, source, virtual, machines[virtual], cache)
        print(f"ampc: {source} for the GPU, sm_{' '.join(machines[virtual])}: {time.monotonic() - begin:.0f} s", flush=True)
        return lines

    jobs = [(source, virtual) for source in sorted(glob.glob("csrc/cuda/*.cu")) for virtual in machines if machines[virtual]]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        text = "".join(line + "\n" for lines in pool.map(one, jobs) for line in lines)

    def write(path: str) -> None:
        with open(path, "w") as f:
            f.write(text)

    return kept(os.path.join(cache, f"images-{hashlib.sha256(text.encode()).hexdigest()[:16]}.def"), write)


def gpu_code() -> "tuple[str, list, list]":
    """The architectures that a build has code for, such as '75 80 90 100', or why it has none; macros, and folders of headers."""
    why = no_gpu_code()
    nvcc = find_nvcc()
    headers = toolkit_headers(nvcc) if nvcc and why != "left out" else []  # the real ones are compared with ours
    if why:
        print(f"ampc: this build has no GPU code ({why}); all else works")
        return why, [], headers
    cache = os.path.abspath(os.environ.get("AMPC_CUDA_CACHE") or os.path.join(HERE, "build", "cuda"))
    os.makedirs(cache, exist_ok=True)
    try:
        wanted = architectures(nvcc)
        images = compile_kernels(nvcc, wanted, cache)
        macros = [("AC_CUDA_IMAGES", f'"{os.path.basename(images)}"'), ("AC_CUDA_TOOLKIT", str(toolkit_version(nvcc)))]
    except subprocess.CalledProcessError as error:
        print(f"ampc: this build has no GPU code: {error}", file=sys.stderr)
        return "nvcc failed", [], headers
    return " ".join(wanted), macros, [*headers, cache]


def is_fresh(target: str, flags: str) -> bool:
    """Whether an object was compiled with these flags from what its sources are now, by the list that the compiler left beside it."""
    try:
        with open(target + ".flags") as f:
            same = f.read() == flags
        with open(os.path.splitext(target)[0] + ".d") as f:
            listed = f.read().replace("\\\n", " ").split(":", 1)[1].strip()
        sources = [path.replace("\\ ", " ").replace("$$", "$") for path in re.split(r"(?<!\\)\s+", listed)]
        made = os.path.getmtime(target)
        return same and all(os.path.getmtime(source) <= made for source in sources)
    except (OSError, IndexError):
        return False


def counted(results: Iterable, total: int) -> Iterable:
    """Shows how far it is: on a terminal a line that changes, elsewhere a line for each tenth."""
    for i, result in enumerate(results, 1):
        if sys.stderr.isatty():
            print(f"\rampc: {i} of {total} C files compiled", end="\n" if i == total else "", file=sys.stderr, flush=True)
        elif i * 10 // total != (i - 1) * 10 // total:
            print(f"ampc: {i} of {total} C files compiled", file=sys.stderr, flush=True)
        yield result


class Build(build_ext):
    """Compiles the sources side by side, and of these only what has changed."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if sys.platform == "win32" and not self.compiler:
            self.compiler = "mingw32"  # the core is written for GCC's and clang's vectors; CC names the compiler

    def build_extensions(self) -> None:
        self.gpu_code, macros, folders = gpu_code()
        self.force = True  # to look at each object; most are fresh
        self.compiler.compile = self.compile_changed(self.compiler.compile, macros, folders)
        super().build_extensions()
        bundle_openblas(self.build_lib)
        note_gpu_code(self.build_lib, self.gpu_code)

    def compile_changed(self, compile_one, cuda_macros, cuda_folders):
        """In place of the compiler's own loop. What tells of the CUDA toolkit goes to the files that are about CUDA."""
        def one(source, target, flags, arguments):
            compile_one([source], **arguments)
            with open(target + ".flags", "w") as f:
                f.write(flags)

        def compile_all(sources, macros=(), include_dirs=(), **options):
            objects, stale = [], []
            for source in sources:
                about_cuda = "cuda" in source.split(os.sep)
                arguments = {"macros": [*macros, *(cuda_macros if about_cuda else [])],
                             "include_dirs": [*include_dirs, *(cuda_folders if about_cuda else [])], **options}
                flags = repr((self.compiler.compiler_so, arguments["macros"], arguments["include_dirs"], options["extra_postargs"]))
                objects += self.compiler.object_filenames([source], output_dir=options["output_dir"])
                if not is_fresh(objects[-1], flags):
                    stale.append((source, objects[-1], flags, arguments))
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(counted(pool.map(lambda job: one(*job), stale), len(stale)))
            if SET:
                self.note_for_tests(objects)
            return objects

        return compile_all

    def note_for_tests(self, objects: "list[str]") -> None:
        """Tells tests/c/Makefile how the set was compiled, and which of its objects know no Python. Written where it says something new."""
        known = ["$(ROOT)/" + path for path in objects if "python" not in path.split(os.sep)]
        text = "\n".join([f"CC := {' '.join(self.compiler.compiler)}", f"CFLAGS := {' '.join([*FLAGS, *SETS[SET]])} -D_GNU_SOURCE",
                          f"OBJECTS := {' '.join(known)}", ""])
        path = os.path.join("build", SET, "core.mk")
        with contextlib.suppress(OSError), open(path) as f:
            if f.read() == text:
                return
        with open(path, "w") as f:
            f.write(text)

    def copy_extensions_to_source(self) -> None:
        super().copy_extensions_to_source()
        bundle_openblas(HERE)
        note_gpu_code(HERE, self.gpu_code)


FLAGS = ["-std=c11", "-MMD", "-O3", "-g0", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fvisibility=hidden",
         "--param", "max-unswitch-insns=1000"]  # GELU's two formulas get a loop each, not both in one; no debug information, half of the wheel
DEFINES = [("_GNU_SOURCE", None)] if sys.platform.startswith("linux") else []
STRICT = ["-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", "-Wconversion", "-Werror", "-DAC_DEBUG", "-g", "-O1",
          "-fno-wrapv"]  # Python's own flags may define what signed overflow does, which would hide it
SETS = {  # the flags of each set, after those of a release
    "": [],
    "debug": [*STRICT, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": [*STRICT, "-fsanitize=thread"],
    # Counters that threads share may lose a count, which matters to no line that runs: atomic ones made products ten times slower.
    "coverage": ["-g", "-O1", "--coverage", "-fprofile-update=single"],
}
SET = os.environ.get("AMPC_BUILD", "")
if SET not in SETS:
    sys.exit(f"AMPC_BUILD={SET}: expected {', '.join(filter(None, SETS))} or nothing")
HEADERS = [sysconfig.get_path("include"), numpy.get_include()]

core = Extension(
    "ampc._C",
    sources=sorted(glob.glob("csrc/**/*.c", recursive=True)),
    include_dirs=["csrc", numpy.get_include()],
    define_macros=DEFINES,
    extra_compile_args=FLAGS + SETS[SET] + [part for path in HEADERS if SET for part in ("-isystem", path)],  # warnings are about our own code
    extra_link_args=["-ldl", "-lm", "-lpthread"] + SETS[SET],
)
folders = {"build_base": f"build/{SET}", "build_lib": f"build/{SET}/lib", "build_temp": f"build/{SET}/objects"} if SET else {}

setup(ext_modules=[core], cmdclass={"build_ext": Build}, options={"build": folders})
