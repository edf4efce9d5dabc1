"""CUDA: devices, streams, events, memory. Names and meanings are torch.cuda's.

The driver is opened only when a function needs it. Without a usable GPU, functions about devices say that there are none, and functions
that wait or free do nothing. Memory statistics then count the CPU's tensors. So scripts that measure time and memory still run.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, Dict, List, Tuple, Union

from .. import _C
from .._C import OutOfMemoryError
from .._names.missing import absent_from
from .._tensor.creation import initial_seed, seed
from .._tensor.device import current
from .._tensor.device import device as _device_type
from . import memory, streams
from .graphs import CUDAGraph, graph, graph_pool_handle, is_current_stream_capturing
from .memory import *  # noqa: F403
from .streams import *  # noqa: F403
from .streams import index_of

if TYPE_CHECKING:
    from .graphed import graph_step, make_graphed_callables  # which `ampc` puts here

Where = Union[_device_type, str, int, None]


def device_count() -> int:
    """How many GPUs can be used; 0 without a driver."""
    return _C._cuda_count()


def is_available() -> bool:
    """Whether there is a GPU that can be used. ``ampc info`` says what is missing when not."""
    return _C._cuda_count() > 0


def is_initialized() -> bool:
    """Whether the driver is in use."""
    return is_available()


def init() -> None:
    """Starts the use of CUDA, which otherwise happens by itself. RuntimeError that says what is missing."""
    _C._cuda_init()


def current_device() -> int:
    """The number of the GPU that 'cuda' means on this thread."""
    _C._cuda_init()
    return current.index


def set_device(device: Where) -> None:
    """Makes a GPU the one that 'cuda' means on this thread, for libraries that use the CUDA runtime, too."""
    index = index_of(device)
    _C._cuda_use(index)
    current.index = index


class device(_C.Scope):
    """``with cuda.device(1):`` makes that GPU the current one within. None and -1 change nothing."""

    def __init__(self, device: Where) -> None:
        self.idx = current.index if device is None or device == -1 else index_of(device)

    def _changes(self) -> tuple:
        return ((setattr, (current, "index", self.idx), setattr, (current, "index", current.index)),)


class device_of(device):
    """The same with the GPU of a tensor; nothing for tensors of the CPU."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else None)


class DeviceProperties:
    """What is known of a GPU: ``name major minor total_memory`` (bytes) ``multi_processor_count
    max_threads_per_multi_processor L2_cache_size`` (bytes) ``uuid``."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int

    def __init__(self, facts: Dict[str, Any]) -> None:
        self.__dict__.update(facts)
        self.uuid = facts["uuid"].hex()

    def __repr__(self) -> str:
        return (f"DeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
                f"total_memory={self.total_memory // 2**20}MB, multi_processor_count={self.multi_processor_count})")


@functools.lru_cache(None)
def _properties(index: int) -> DeviceProperties:
    return DeviceProperties(_C._cuda_facts(index))


def get_device_properties(device: Where = None) -> DeviceProperties:
    """What is known of a GPU; the same object each time."""
    return _properties(index_of(device))


def get_device_name(device: Where = None) -> str:
    """The name of a GPU."""
    return get_device_properties(device).name


def get_device_capability(device: Where = None) -> Tuple[int, int]:
    """Its compute capability, (major, minor)."""
    p = get_device_properties(device)
    return p.major, p.minor


def get_arch_list() -> List[str]:
    """The architectures that this build has code for, such as 'sm_90'; empty without code, and without a GPU."""
    return [f"sm_{n}" for n in sorted(_C._cuda_architectures())] if is_available() else []


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the GPU has bfloat16 tensor cores (compute capability 8.0), or computes it otherwise; False without a GPU."""
    if not is_available():
        return False
    return including_emulation or get_device_capability()[0] >= 8


def is_tf32_supported() -> bool:
    """Whether the GPU has TF32 tensor cores."""
    return is_available() and get_device_capability()[0] >= 8


def can_device_access_peer(device: Where, peer_device: Where) -> bool:
    """Whether two different GPUs are there: copies between them go through the driver either way."""
    return index_of(device) != index_of(peer_device)


def synchronize(device: Where = None) -> None:
    """Waits for all work of a GPU; without a GPU there is none, so that scripts that time their steps run on a CPU, too. IndexError when a kernel
    met a bad index."""
    if is_available():
        _C._cuda_synchronize(index_of(device))


def ipc_collect() -> None:
    """Nothing to collect: memory is not shared between processes."""


def manual_seed(seed: Any) -> None:
    """Seeds the random stream, which the CPU and GPUs share: the same counters give the same numbers on both."""
    from .._tensor.creation import manual_seed as start

    start(seed)


manual_seed_all = manual_seed
seed_all = seed


def get_rng_state(device: Where = "cuda") -> Any:
    """The state of the random stream."""
    from .._tensor.creation import get_rng_state as get

    return get()


def set_rng_state(new_state: Any, device: Where = "cuda") -> None:
    """Continues the random stream from a state."""
    from .._tensor.creation import set_rng_state as put

    put(new_state)


def _nvtx_nothing(*args: Any) -> None:
    """Ranges for a profiler: accepted, not recorded."""


class nvtx:
    """Profiler marks, accepted and not recorded."""

    range = contextlib.nullcontext

    range_push = staticmethod(_nvtx_nothing)
    range_pop = staticmethod(_nvtx_nothing)
    range_start = staticmethod(_nvtx_nothing)
    range_end = staticmethod(_nvtx_nothing)
    mark = staticmethod(_nvtx_nothing)


__all__ = [
    "CUDAGraph", "graph", "graph_pool_handle", "graph_step", "is_current_stream_capturing", "make_graphed_callables",
    "DeviceProperties", "OutOfMemoryError",
    "amp", "can_device_access_peer", "current_device", "device", "device_count", "device_of", "get_arch_list", "get_device_capability",  # noqa: F405
    "get_device_name", "get_device_properties", "get_rng_state", "index_of", "init", "initial_seed", "ipc_collect", "is_available",
    "is_bf16_supported", "is_initialized", "is_tf32_supported", "manual_seed", "manual_seed_all", "nvtx", "seed", "seed_all", "set_device",
    "set_rng_state", "synchronize",
    *memory.__all__, *streams.__all__,
]

if not TYPE_CHECKING:
    _absent = absent_from(__name__)

    def __getattr__(name: str) -> Any:
        if name.endswith("Tensor") and name[0] != "_":
            from .._tensor.typed import types_of

            found = types_of("cuda")
            globals().update(found)
            if name in found:
                return found[name]
        return _absent(name)
