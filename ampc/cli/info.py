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


def _kib(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 and not size % (1 << 20) else f"{size / 1024:g} KiB"


def _machine() -> list:
    """The facts that choose a way through the core. Each can be set by the variable behind it."""
    import ampc

    facts = ampc._C._machine()

    def source(*variables: str) -> str:
        used = [v for v in variables if v in facts["set"]]
        return f"(set by {', '.join(used)})" if used else f"({' or '.join(variables)} sets it)"

    return [
        ("CPU features", f"{facts['isa']} {source('AMPC_CPU')}"),
        ("caches", f"{_kib(facts['l1_bytes'])} of first level {source('AMPC_L1_BYTES')}, "
                   f"{_kib(facts['l2_bytes'])} of second level {source('AMPC_L2_BYTES')}"),
        ("cores", f"{facts['cores']} {source('AMPC_CORES')}"),
        ("threads", f"{facts['threads']} {source('OMP_NUM_THREADS', 'ampc.set_num_threads')}"),
        ("huge pages", f"{'asked for' if facts['huge_pages'] else 'not asked for'} {source('AMPC_HUGE_PAGES')}"),
    ]


def _lines(rows: list) -> list:
    return [f"{name:<13} {text}" for name, text in rows]


def facts_of(device: str) -> list:
    """The lines about this machine's CPU, or about its GPUs."""
    return _lines(_machine() if device == "cpu" else _cuda())


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
        *_machine(),
        ("loops chosen", build["cpu_loops"]),
        ("BLAS", blas),
        *_cuda(),
        ("right numbers", "`ampc selftest` checks the kernels that this machine chooses"),
    ]
    return "\n".join(_lines(rows))
