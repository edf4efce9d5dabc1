"""Builds the extension ampc._C from csrc/ and bundles OpenBLAS beside it."""

import glob
import os
import shutil
import sys
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


class Build(build_ext):
    """Compiles the sources side by side; they are independent."""

    def build_extensions(self) -> None:
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


DEBUG = os.environ.get("AMPC_DEBUG")  # e.g. "-fsanitize=address -g -O1"
FLAGS = ["-std=c11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fvisibility=hidden",
         "--param", "max-unswitch-insns=1000"]  # GELU's two formulas get a loop each, not both in one
DEFINES = [("_GNU_SOURCE", None)] if sys.platform.startswith("linux") else []

core = Extension(
    "ampc._C",
    sources=sorted(glob.glob("csrc/*/*.c")),
    depends=sorted(glob.glob("csrc/*/*.h") + glob.glob("csrc/*/*.def") + glob.glob("csrc/*/*.inc")),
    include_dirs=[numpy.get_include()],
    define_macros=DEFINES,
    extra_compile_args=FLAGS + (DEBUG.split() if DEBUG else []),
    extra_link_args=["-ldl", "-lm", "-lpthread"] + (DEBUG.split() if DEBUG else []),
)

setup(ext_modules=[core], cmdclass={"build_ext": Build})
