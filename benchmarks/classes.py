"""The classes of CPUs, by their widest instructions, and how both libraries are held to those of one class.

A CPU of a higher class has all instructions of the lower ones, so it can be measured as one of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class CpuClass:
    name: str  # what --cpu takes
    title: str
    ampc: str  # AMPC_CPU
    aten: str  # ATEN_CPU_CAPABILITY: torch's own loops
    onednn: str  # ONEDNN_MAX_CPU_ISA: torch's convolutions, and its products in 16 bits
    onednn_says: str  # what oneDNN's own name of that has
    mkl: str  # MKL_ENABLE_INSTRUCTIONS: torch's products in float32
    units: Optional[str]  # what multiplies bfloat16 numbers as such; None: products convert them to float32

    @property
    def environment(self) -> dict[str, str]:
        """Holds ampc and torch to this class.

        MKL heeds its variable on Intel's CPUs alone. On AMD's it has kernels made for Zen, which are AVX2 in every class. (``perf record``
        of a product shows the kernel ``mkl_blas_def_sgemm_kernel_0_zen``, whatever the variable says.) So torch's float32 products on an
        AMD CPU are the same in all classes. FBGEMM is a part of torch, too. The C library's ``memcpy`` and its like are not held to a
        class: both libraries call the same ones."""
        return {"AMPC_CPU": self.ampc, "ATEN_CPU_CAPABILITY": self.aten, "ONEDNN_MAX_CPU_ISA": self.onednn,
                "MKL_ENABLE_INSTRUCTIONS": self.mkl, "FBGEMM_ENABLE_INSTRUCTIONS": self.aten.upper()}


CLASSES = {c.name: c for c in (
    CpuClass("avx2", "AVX2", "avx2", "avx2", "AVX2", r"Intel AVX2$", "AVX2", None),
    CpuClass("avx512", "AVX-512", "avx512", "avx512", "AVX512_CORE", r"AVX-512 with AVX512BW", "AVX512", None),
    CpuClass("avx512bf16", "AVX-512 with bfloat16", "avx512_bf16", "avx512", "AVX512_CORE_BF16", r"AVX-512 .*bfloat16", "AVX512_E3", "dot products"),
    CpuClass("amx", "AMX", "amx_bf16", "avx512", "AVX512_CORE_AMX", r"AMX with bfloat16 and", "AVX512_E4", "tiles"),
)}
_LEVELS = {**{c.ampc: c for c in CLASSES.values()}, "amx_fp16": CLASSES["amx"]}  # of ampc's names
_BEFORE_CLASSES = {"Intel(R) Xeon(R) Processor, 2 cores": "amx", "AMD EPYC, 2 cores": "avx512bf16"}  # machines of rounds that name no class


def class_of(result: dict) -> CpuClass:
    """The class that rounds were measured in; of old rounds, which were held to none, their machine's."""
    return CLASSES[result.get("class") or _BEFORE_CLASSES[result["machine"]]]


def own_class_of(result: dict) -> CpuClass:
    """The class of the CPU that they were measured on."""
    return CLASSES[result.get("own_class") or _BEFORE_CLASSES[result["machine"]]]


def own_class() -> Optional[CpuClass]:
    """This CPU's; None below AVX2."""
    import ampc

    return _LEVELS.get(ampc._C._machine()["cpu"])


def lower_or_same(own: CpuClass) -> list[str]:
    """The names of the classes that a CPU can be held to."""
    names = list(CLASSES)
    return names[:names.index(own.name) + 1]


_ASK_AMPC = "import ampc; print(ampc._C._machine()['isa'])"
_ASK_TORCH = """
import torch
torch.nn.functional.conv2d(torch.randn(8, 16, 32, 32), torch.randn(16, 16, 3, 3))  # by oneDNN
torch.randn(64, 64) @ torch.randn(64, 64)  # by MKL
print("aten:", torch.backends.cpu.get_cpu_capability())
"""


def _ask(code: str, environment: dict[str, str]) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environment},
                          cwd=os.path.dirname(os.path.abspath(__file__))).stdout  # the ampc that is installed, and not the source folder


def held_to(cpu: CpuClass) -> dict[str, str]:
    """What the libraries themselves say that they use under ``cpu.environment``. RuntimeError where one is not held to the class."""
    text = _ask(_ASK_TORCH, {**cpu.environment, "ONEDNN_VERBOSE": "1", "MKL_VERBOSE": "1"})
    found = {key: match[1].strip() if (match := re.search(pattern, text)) else "nothing" for key, pattern in
             (("ATen", r"aten: (.*)"), ("oneDNN", r"cpu,isa:(.*)"), ("MKL", r"for Intel\(R\) 64 architecture (.*?), Lnx"))}
    found["ampc"] = _ask(_ASK_AMPC, cpu.environment).strip()
    wanted = {"ampc": f"{cpu.ampc}$", "ATen": f"{cpu.aten.upper()}$", "oneDNN": cpu.onednn_says, "MKL": "^(?!.*512)" if cpu.name == "avx2" else ""}
    wrong = [f"{key} says {found[key]!r}" for key, pattern in wanted.items() if not re.search(pattern, found[key])]
    if wrong:
        raise RuntimeError(f"not held to {cpu.name}: {'; '.join(wrong)}")
    return found
