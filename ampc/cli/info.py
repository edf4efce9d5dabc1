"""``ampc info``: what this installation is made of and what it found on this machine."""

from __future__ import annotations

import platform


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
        ("CUDA", "no: this version computes on the CPU only"),
    ]
    return "\n".join(f"{name:<13} {text}" for name, text in rows)
