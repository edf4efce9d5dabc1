"""``ampc info``: describes this build and this machine."""

from __future__ import annotations

import os
import platform
import shutil
from typing import Tuple

ARCHITECTURES = ("75", "80", "90", "100", "120")  # for which a complete build has GPU code, as in setup.py
_WHY = {"left out": "GPU code was left out when this was built (AMPC_CUDA=0)", "no nvcc": "nvcc was not found when this was built",
        "nvcc failed": "nvcc failed when this was built; the build's output says why",
        "no lzma": "GPU code needs a Python with the module lzma, and the one that built this lacks it",
        "no GPU": "this was built by AMPC_CUDA=native, and nvidia-smi named no GPU of sm_75 or newer"}
_PACKAGES = {"cublasLt": ("nvidia-cublas", "nvidia-cublas-cu12"), "nccl": ("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
             "cudnn": ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12")}  # for a driver of CUDA 13, and of CUDA 12


def _built_for() -> Tuple[str, ...]:
    """The GPU architectures of this build. If it has none: a reason from ``_WHY``, or 'unknown'."""
    try:
        with open(os.path.join(os.path.dirname(os.path.dirname(__file__)), "_libs", "gpu_code.txt"), encoding="ascii") as f:
            text = f.read().strip()
    except (OSError, UnicodeDecodeError):
        return ("unknown",)
    return (text,) if text in _WHY else tuple(text.split())


def _gpu_code(kernels: str) -> str:
    """Which GPU code this build has, and how to get the rest. ``kernels``: what the core says."""
    found = _built_for()
    some = [n for n in found if n.isdigit()]
    if found == ("unknown",) or bool(some) != kernels.startswith("built"):
        return kernels  # the note is of another build
    missing = [n for n in ARCHITECTURES if n not in some]
    has = f"built for {', '.join(f'sm_{n}' for n in some)}, and as PTX for what is newer" if some else f"none: {_WHY[found[0]]}"
    if not missing:
        return has
    there = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    what = f"adds {', '.join(f'sm_{n}' for n in missing)}" if some else "builds it"
    return f"{has}; `AMPC_CUDA=1 pip install .` in the source folder {what}" + ("" if there else ", once the CUDA toolkit with nvcc is installed")


def _cuda() -> list:
    """One line for each thing that GPUs need: its version, or what is missing."""
    import ampc

    note = ampc._C._cuda_note
    count = ampc.cuda.device_count()
    if count:
        found = ", ".join(f"{i}: {p.name} (sm_{p.major}{p.minor}, {p.total_memory / 2**30:.0f} GiB)"
                          for i, p in ((i, ampc.cuda.get_device_properties(i)) for i in range(count)))
    else:
        found = "none can be used"
    libraries = [(title, _library(name, note("driver")) if count else note(name)) for title, name in
                 (("cuBLASLt", "cublasLt"), ("NCCL", "nccl"), ("cuDNN", "cudnn"))]
    return [("GPUs", found), ("GPU kernels", _gpu_code(note("kernels"))), ("NVIDIA driver", note("driver")), *libraries]


def _library(name: str, driver: str) -> str:
    """A library's version, or which package brings it."""
    import ampc

    found = ampc._C._cuda_note(name)
    package = _PACKAGES[name][driver.startswith("CUDA 12")]
    return f"{found}; `pip install {package}` brings it" if found.startswith("not found") else found


def _bytes(size: int) -> str:
    return f"{size >> 20} MiB" if not size % (1 << 20) else f"{size >> 10} KiB" if not size % (1 << 10) else f"{size} bytes"


def _model() -> str:
    """The CPU's name, as its maker and the system give it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def _machine() -> list:
    """The facts about the machine that select an algorithm, each with the variable that can set it."""
    import ampc

    facts = ampc._C._machine()

    def source(*variables: str) -> str:
        used = [v for v in variables if v in facts["set"]]
        return f"set by {used[-1]}" if used else f"{' or '.join(variables)} can set it"

    features = source("AMPC_CPU")
    if facts["asked"] != facts["isa"]:
        features = f"AMPC_CPU asks for {facts['asked']}, which this CPU lacks"
    elif facts["cpu"] != facts["isa"]:
        features += f"; this CPU has {facts['cpu']}"
    return [
        ("CPU", _model()),
        ("CPU features", f"{facts['isa']} ({features})"),
        ("cache", f"{_bytes(facts['l2_bytes'])} of second level ({source('AMPC_L2_BYTES')})"),
        ("cores", f"{facts['cores']} ({source('AMPC_CORES')})"),
        ("threads", f"{facts['threads']} ({source('OMP_NUM_THREADS', 'ampc.set_num_threads')})"),
        ("huge pages", f"{'asked for' if facts['huge_pages'] else 'not asked for'} ({source('AMPC_HUGE_PAGES')})"),
    ]


def _lines(rows: list) -> list:
    return [f"{name:<13} {text}" for name, text in rows]


def facts_of(device: str) -> list:
    """The lines about this machine's CPU, or about its GPUs."""
    return _lines(_machine() if device == "cpu" else _cuda())


def info() -> str:
    """The text of ``ampc info``."""
    import numpy as np

    import ampc

    build = ampc._C._build_info()
    blas = build["blas"]
    if blas == "own loops":
        blas += " (no OpenBLAS was bundled for this platform: float32 products are slow)"
    rows = [
        ("ampc", f"{ampc.__version__}, Python {platform.python_version()}, NumPy {np.__version__}, {platform.system()} {platform.machine()}"),
        ("compiler", f"GCC-compatible {build['compiler']}"),
        *_machine(),
        ("loops", f"{build['cpu_loops']} (elementwise operators are compiled for each of baseline, avx2 and avx512)"),
        ("BLAS", blas),
        *_cuda(),
        ("self-test", "`ampc selftest` says whether the kernels of this machine give right numbers"),
    ]
    return "\n".join(_lines(rows))
