"""What csrc/cuda/abi.h says of the CUDA driver, cuBLASLt, cuDNN and NCCL, against NVIDIA's own headers and libraries of PyPI; no GPU is needed.

    python tools/abi.py           # exit status 1 where something differs; one line, and 0, where the wheels or nvcc are not to be had
    python tools/abi.py --nccl    # NCCL, too, whose wheel has 300 MB; from then on its header is compared without the option

1. csrc/cuda/abi_check.c compiles with the real headers: every constant, type and function. With a wrong constant it does not.
2. The libraries export every function that csrc/cuda/load.c looks up. Of the driver there is no library to be had; its header declares them.
3. The argument structs of csrc/cuda/args.h have the sizes in nvcc's PTX that they have in C.

Headers and names are kept in build/abi. The wheels take a gigabyte while they are read, and are deleted then. Nothing of them is a part of
the source."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Dict, List, Optional, Set

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "build" / "abi"
WHEELS = ("nvidia-cuda-runtime==13.5.37", "nvidia-cuda-crt==13.5.37", "nvidia-cuda-cccl==13.3.5.0.6", "nvidia-cublas==13.10.0.20", "nvidia-cudnn-cu13==9.28.1.4")
NCCL = "nvidia-nccl-cu13==2.32.3"
LIBRARIES = {"cublasLt": "libcublasLt.so.", "cudnn": "libcudnn.so.", "nccl": "libnccl.so."}  # by the prefix of their functions
VERSIONS = {"cudnn": {"cudnnGetVersion"}}  # looked up by load.c beside those of abi.h
SECONDS = 90  # that a wheel may take to arrive
CC, NVCC = os.environ.get("CC", "cc"), shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"


def wheels() -> List[str]:
    """Those to compare with: NCCL's where it is kept or asked for."""
    return [*WHEELS, *([NCCL] if "--nccl" in sys.argv or folder_of(NCCL).exists() else [])]


class Unavailable(Exception):
    """What is needed cannot be had on this machine."""


def run(command: List[str], **options: object) -> str:
    """The output of a command. RuntimeError with what it said where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:2])}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


# -- wheels --------------------------------------------------------------------------------------------------------------------


def folder_of(wheel: str) -> Path:
    return KEPT / wheel.replace("==", "-")


def header(name: str) -> str:
    """The name by which a file of a wheel is included; "" for other files, and for C++ libraries."""
    _, inside, rest = name.partition("/include/")
    wanted = rest.startswith(("nv/", "crt/")) or ("/" not in rest and rest.endswith((".h", ".hpp")))
    return rest if inside and wanted and not rest.endswith("/") else ""


def keep(wheel: str) -> None:
    """Downloads a wheel, and keeps its headers and the names that its libraries export."""
    if folder_of(wheel).exists():
        return
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT) as room:
        try:
            run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", room, wheel], timeout=SECONDS)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"{wheel} cannot be downloaded: {str(error).splitlines()[-1]}") from None
        parts = Path(room) / "parts"
        with zipfile.ZipFile(next(Path(room).glob("*.whl"))) as archive:
            for name in archive.namelist():
                if header(name):
                    target = parts / "include" / header(name)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.read(name))
                if Path(name).name.startswith(tuple(LIBRARIES.values())):
                    library = Path(archive.extract(name, room))
                    (parts / (library.name + ".names")).write_text("\n".join(exported(library)))
        parts.rename(folder_of(wheel))


def exported(library: Path) -> List[str]:
    """The functions of a shared library."""
    lines = run(["nm", "-D", "--defined-only", str(library)]).splitlines()
    return sorted(line.split()[-1].split("@")[0] for line in lines if line.split()[-2] in "TWi")


# -- the three checks ----------------------------------------------------------------------------------------------------------


def compile_check(includes: List[str], source: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([CC, "-fsyntax-only", "-std=gnu11", *includes, str(source)], cwd=ROOT, capture_output=True, text=True)


def check_headers() -> str:
    """abi_check.c with the real headers; and that it would notice."""
    includes = ["-Icsrc", *(f"-I{folder_of(wheel) / 'include'}" for wheel in wheels())]
    with_nccl = NCCL in wheels()
    macros = run([CC, "-dM", "-E", *includes, "csrc/cuda/abi_check.c"])
    for macro in ("AC_CUDA_HEADERS", "AC_CUBLASLT_HEADERS", "AC_CUDNN_HEADERS", *(["AC_NCCL_HEADERS"] if with_nccl else [])):
        if not re.search(rf"#define {macro}\b", macros):
            raise RuntimeError(f"{macro} is not set: abi_check.c has not found the real headers")
    done = compile_check(includes, ROOT / "csrc/cuda/abi_check.c")
    if done.returncode:
        raise RuntimeError(done.stderr)
    for wrong in ("AC_CU_L2_BYTES, 38", "AC_LT_EPILOGUE_BIAS, 4", "AC_DNN_IDENTITY, 5", *(["AC_NCCL_AVG, 4"] if with_nccl else [])):
        if not notices(includes, wrong):
            raise RuntimeError(f"a wrong value of {wrong.split(',')[0]} compiles: nothing was compared")
    version = re.search(r"#define CUDA_VERSION (\d+)", macros)
    return f"headers: {version.group(1) if version else '?'} of CUDA, cuBLASLt{', cuDNN and NCCL' if with_nccl else ' and cuDNN'} as abi.h says"


def notices(includes: List[str], constant: str) -> bool:
    """Whether another value of a constant in a copy of abi.h does not compile."""
    text = (ROOT / "csrc/cuda/abi.h").read_text()
    assert text.count(constant) == 1, constant
    with tempfile.TemporaryDirectory() as room:
        copy = Path(room) / "cuda" / "abi.h"
        copy.parent.mkdir()
        copy.write_text(text.replace(constant, constant + "1"))
        return compile_check([f"-I{room}", *includes], ROOT / "csrc/cuda/abi_check.c").returncode != 0


def loaded() -> Dict[str, Set[str]]:
    """The functions that are looked up, by their library."""
    program = '#include "cuda/abi.h"\n#define CU(name, ...) @name@\n#define LT(result, name, ...) @name@\n'
    text = run([CC, "-E", "-P", "-Icsrc", "-x", "c", "-"], input=program + "AC_CU_FUNCTIONS(CU) AC_LT_FUNCTIONS(LT) AC_DNN_FUNCTIONS(CU) AC_NCCL_FUNCTIONS(LT)")
    names = set(re.findall(r"@\s*(\w+)\s*@", text))
    found = {prefix: {name for name in names if name.startswith(prefix)} | VERSIONS.get(prefix, set()) for prefix in LIBRARIES}
    if not all(found.values()):
        raise RuntimeError("abi.h lists no functions")
    return found


def check_names() -> str:
    """Every function that is looked up is exported."""
    have: Dict[str, Set[str]] = {}
    for wheel in wheels():
        for path in folder_of(wheel).glob("*.names"):
            prefix = next(p for p, file in LIBRARIES.items() if path.name.startswith(file))
            have[prefix] = set(path.read_text().split())
    said = []
    for prefix, names in loaded().items():
        if prefix not in have and prefix == "nccl":
            continue  # its wheel was not asked for
        missing = sorted(names - have[prefix])
        if missing:
            raise RuntimeError(f"{LIBRARIES[prefix]}* does not export {', '.join(missing)}")
        said.append(f"{len(names)} of {prefix}")
    return "exports: " + ", ".join(said)


def struct_names() -> List[str]:
    """The structs that host and kernels share: those that launches pass, and those that these point to."""
    return re.findall(r"^} (ac_gpu_\w+);", (ROOT / "csrc/cuda/args.h").read_text(), re.M)


def sizes_in_c(names: List[str], room: Path) -> Dict[str, int]:
    program = room / "sizes.c"
    lines = "".join(f'    printf("{name} %zu\\n", sizeof({name}));\n' for name in names)
    program.write_text(f'#include "cuda/args.h"\n#include <stdio.h>\nint main(void) {{\n{lines}    return 0;\n}}\n')
    run([CC, "-std=gnu11", "-Icsrc", "-o", str(room / "sizes"), str(program)])
    return {name: int(size) for name, size in (line.split() for line in run([str(room / "sizes")]).splitlines())}


def sizes_in_ptx(names: List[str], room: Path) -> Dict[str, int]:
    """Of a kernel for each struct, which does nothing: the PTX says how many bytes it takes."""
    source = room / "sizes.cu"
    source.write_text('#include "cuda/device.cuh"\n' + "".join(f"AC_KERNEL(takes_{name}, {name}) {{}}\n" for name in names))
    run([NVCC, "-ptx", "-std=c++17", "-arch=compute_80", "-Icsrc", "-o", str(room / "sizes.ptx"), str(source)])
    found = re.findall(r"\.param \.align \d+ \.b8 takes_(\w+)_param_0\[(\d+)\]", (room / "sizes.ptx").read_text())
    return {name: int(size) for name, size in found}


def check_structs() -> str:
    """The structs have one size on both sides."""
    if not os.access(NVCC, os.X_OK):
        raise Unavailable("there is no nvcc: argument structs are not compared")
    names = struct_names()
    with tempfile.TemporaryDirectory() as room:
        ours, theirs = sizes_in_c(names, Path(room)), sizes_in_ptx(names, Path(room))
    if not names or set(theirs) != set(names):
        raise RuntimeError(f"the PTX lacks {', '.join(sorted(set(names) - set(theirs))) or 'every kernel'}")
    different = [f"{name}: {ours[name]} bytes in C, {theirs[name]} in PTX" for name in names if ours[name] != theirs[name]]
    if different:
        raise RuntimeError("; ".join(different))
    return f"structs: {len(names)} argument structs have the same size in C and in PTX, {min(ours.values())} to {max(ours.values())} bytes"


def missing_wheel() -> Optional[str]:
    """Why the wheels cannot be had, or None."""
    try:
        for wheel in wheels():
            keep(wheel)
    except Unavailable as error:
        return str(error)
    return None


def main() -> int:
    left_out = missing_wheel()
    checks = [check_structs] if left_out else [check_headers, check_names, check_structs]
    if left_out:
        print(f"left out, headers and exports: {left_out}")
    failed = False
    for check in checks:
        try:
            print(check())
        except Unavailable as error:
            print(f"left out: {error}")
        except RuntimeError as error:
            failed = True
            print(f"{check.__name__}: {error}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
