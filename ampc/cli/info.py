"""``ampc info``: what this installation is made of and what it found on this machine."""

from __future__ import annotations

import platform


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
    return [("GPUs", found), ("GPU code", note("kernels")), ("NVIDIA driver", note("driver")), ("cuBLASLt", note("cublasLt")),
            ("NCCL", note("nccl") + " (nothing uses it yet)"), ("cuDNN", note("cudnn"))]


def info() -> str:
    """The text of ``ampc info``."""
    import ampc

    build = ampc._C._build_info()
    blas = build["blas"]
    if blas == "own loops":
        blas += " (no OpenBLAS was bundled for this platform: float32 products are slow)"
    rows = [
        ("ampc", f"{ampc.__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"),
        ("compiler", f"GCC-compatible {build['compiler']}"),
        ("CPU features", build["cpu_features"]),
        ("loops chosen", build["cpu_loops"] + " (AMPC_CPU=baseline, avx2 or avx512 caps the choice)"),
        ("BLAS", blas),
        ("threads", f"{build['threads']} (OMP_NUM_THREADS or ampc.set_num_threads changes it)"),
        *_cuda(),
    ]
    return "\n".join(f"{name:<13} {text}" for name, text in rows)
