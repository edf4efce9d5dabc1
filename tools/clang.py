"""Compiles the core with clang (as ziglang brings it) for CPUs without any of the instruction sets that GCC's builds choose among.

    python tools/clang.py      # exits with 1, and the compiler's words, where a file does not compile

For x86-64's baseline all of csrc/, into a library that is loaded; for 64-bit ARM, macOS and Windows all but csrc/python, which would want those
systems' Python.
"""

from __future__ import annotations

import glob
import os
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy

FLAGS = ["-std=c11", "-O1", "-fno-sanitize=undefined", "-D_GNU_SOURCE", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast",
         "-fvisibility=hidden", "-fPIC"]
PYTHON = "csrc/python/"
TARGETS = {"x86_64-linux-gnu": (["-mcpu=x86_64"], ""), "aarch64-linux-gnu": ([], PYTHON), "aarch64-macos": ([], PYTHON),
           "x86_64-windows-gnu": ([], PYTHON)}  # flags, and what is left out


def compile_for(target: str, folder: str) -> tuple[list, list]:
    """Objects, and what went wrong."""
    extra, without = TARGETS[target]
    headers = ["-Icsrc", f"-I{sysconfig.get_paths()['include']}", f"-I{numpy.get_include()}"]

    def one(source: str) -> tuple[str, str]:
        out = os.path.join(folder, f"{target}-{source.replace('/', '_')}.o")
        command = [sys.executable, "-m", "ziglang", "cc", "-target", target, *extra, *FLAGS, *headers, "-c", "-o", out, source]
        done = subprocess.run(command, capture_output=True, text=True)
        return out, "" if done.returncode == 0 else f"{target}: {source}\n{done.stderr}"

    sources = [s for s in sorted(glob.glob("csrc/**/*.c", recursive=True)) if not without or not s.startswith(without)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(one, sources))
    return [out for out, _ in made], [text for _, text in made if text]


def main() -> int:
    """Compiles for each; loads what was made for this machine."""
    with tempfile.TemporaryDirectory() as folder:
        for target in TARGETS:
            objects, wrong = compile_for(target, folder)
            print(f"{target}: {len(objects) - len(wrong)} of {len(objects)} files")
            if wrong:
                print("\n".join(wrong), file=sys.stderr)
                return 1
            if not TARGETS[target][1]:
                library = os.path.join(folder, "_C.so")
                link = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-shared", "-o", library, *objects, "-ldl", "-lm", "-lpthread"]
                subprocess.run(link, check=True)
                subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.PyDLL({library!r}).PyInit__C"], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
