"""What a report about a problem should say of the machine: torch.utils.collect_env. ``ampc info`` prints more."""

from __future__ import annotations

import os
import platform
import sys
from typing import List, NamedTuple, Optional

from .. import _C, cuda
from ..version import __version__

__all__ = ["SystemEnv", "get_env_info", "get_pip_packages", "get_platform", "get_pretty_env_info", "main", "pretty_str"]

_PACKAGES = ("ampc", "numpy", "torch", "torchvision", "torchaudio", "lightning", "transformers", "accelerate", "safetensors", "optree")


class SystemEnv(NamedTuple):
    """Facts about ampc, Python and the machine. None where something is not known."""

    torch_version: str
    is_debug_build: str
    cuda_compiled_version: Optional[str]
    gcc_version: str
    os: str
    libc_version: str
    python_version: str
    python_platform: str
    is_cuda_available: str
    nvidia_gpu_models: Optional[str]
    pip_packages: str
    cpu_info: str


def get_platform() -> str:
    """sys.platform."""
    return sys.platform


def get_pip_packages() -> List[str]:
    """name==version of the installed packages that matter here."""
    from importlib import metadata

    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name}=={metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return found


def get_env_info() -> SystemEnv:
    """All that is known."""
    build, machine = _C._build_info(), platform.uname()
    there = cuda.is_available()
    gpus = "\n".join(f"GPU {i}: {cuda.get_device_name(i)}" for i in range(cuda.device_count())) if there else None
    cpu = (f"{machine.machine}, {os.cpu_count()} processors; kernels for {build['cpu_features']}, products by {build['blas']}, "
           f"{build['threads']} threads")
    return SystemEnv(__version__, "False", None, build["compiler"], f"{machine.system} {machine.release}", "-".join(platform.libc_ver()),
                     f"{sys.version.split()[0]} ({sys.maxsize.bit_length() + 1}-bit runtime)", platform.platform(), str(there), gpus,
                     "\n".join(get_pip_packages()), cpu)


def pretty_str(envinfo: SystemEnv) -> str:
    """The facts as text."""
    names = {"torch_version": "ampc version", "is_debug_build": "Is debug build", "cuda_compiled_version": "CUDA used to build",
             "gcc_version": "Compiler", "os": "OS", "libc_version": "Libc version", "python_version": "Python version",
             "python_platform": "Python platform", "is_cuda_available": "Is CUDA available", "nvidia_gpu_models": "GPU models",
             "pip_packages": "Packages", "cpu_info": "CPU"}
    return "\n".join(f"{names[k]}: {'N/A' if v is None else chr(10) + v if chr(10) in v else v}" for k, v in envinfo._asdict().items())


def get_pretty_env_info() -> str:
    """pretty_str of get_env_info."""
    return pretty_str(get_env_info())


def main() -> None:
    """Prints it."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
