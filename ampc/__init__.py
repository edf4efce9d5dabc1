"""ampc: mixed-precision training. ``import ampc as torch`` and an AMP script runs unchanged."""

import glob as _glob
import os as _os
import sys as _sys
import warnings as _warnings
from typing import Any as _Any

try:
    from . import _C
except ImportError as _e:
    from importlib.machinery import EXTENSION_SUFFIXES as _suffixes

    if [_suffix for _suffix in _suffixes if _os.path.exists(_os.path.join(_os.path.dirname(__file__), "_C" + _suffix))]:
        raise  # it is there, and says itself why it cannot be loaded
    raise ImportError(
        f"ampc's core is not built for {_sys.implementation.name} {_sys.version_info[0]}.{_sys.version_info[1]} in {_os.path.dirname(__file__)}. "
        "If this is the source folder, run from another folder, or build in place with: pip install -e ."
    ) from _e

if (_note := _C._machine()["note"]) is not None:
    _warnings.warn(_note, RuntimeWarning, stacklevel=2)
for _path in _glob.glob(_os.path.join(_os.path.dirname(__file__), "_libs", "*openblas*")):
    _C._set_blas(_path)
# where CUDA's libraries may lie, looked at when CUDA is first used: PyPI's wheels beside us, the toolkit
_C._cuda_set_paths(":".join([
    _os.path.join(_site, "nvidia", _part, "lib")
    for _site in (_os.path.dirname(_os.path.dirname(__file__)), *(_os.path.join(_os.path.dirname(_os.__file__), _p)
                                                                for _p in ("site-packages", "dist-packages")))
    for _part in ("cu13", "cublas", "nccl", "cudnn")
] + ["/usr/local/cuda/lib64"]))

from . import (
    _interop,  # attaches the protocols of sharing memory
    _tensor,  # attaches methods to Tensor
    _composed,  # and more
    amp,
    autograd,
    backends,
    cpu,
    cuda,
    linalg,
    nn,
    optim,
    serialization,
    utils,
)
from ._C import (
    OutOfMemoryError,
    Tensor,
    bfloat16,
    bool,
    dtype,
    float16,
    float32,
    float64,
    from_numpy,
    get_default_dtype,
    get_num_threads,
    int8,
    int16,
    int32,
    int64,
    is_grad_enabled,
    is_inference_mode_enabled,
    promote_types,
    result_type,
    set_default_dtype,
    set_num_threads,
    uint8,
)
from ._unsupported_dtypes import (
    cdouble,
    cfloat,
    complex64,
    complex128,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    uint16,
    uint32,
    uint64,
)
from ._creation import (
    Generator,
    arange,
    as_tensor,
    default_generator,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    get_rng_state,
    initial_seed,
    linspace,
    manual_seed,
    ones,
    ones_like,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    randperm,
    seed,
    set_rng_state,
    tensor,
    zeros,
    zeros_like,
)
from ._device import (
    Size,
    channels_last,
    channels_last_3d,
    contiguous_format,
    device,
    get_default_device,
    memory_format,
    preserve_format,
    set_default_device,
)
from ._finfo import finfo, iinfo
from ._functions import (
    allclose,
    chunk,
    equal,
    is_floating_point,
    is_tensor,
    masked_select,
    movedim,
    nonzero,
    numel,
    split,
    unbind,
)
from ._interop import from_dlpack
from ._printing import set_printoptions
from .amp import (
    GradScaler,
    autocast,
    clear_autocast_cache,
    get_autocast_dtype,
    is_autocast_cache_enabled,
    is_autocast_enabled,
    set_autocast_cache_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
)
from .amp.autocast_mode import (
    autocast_decrement_nesting,
    autocast_increment_nesting,
    get_autocast_cpu_dtype,
    get_autocast_gpu_dtype,
    is_autocast_cpu_enabled,
    set_autocast_cpu_dtype,
    set_autocast_cpu_enabled,
    set_autocast_gpu_dtype,
)
from ._settings import (
    are_deterministic_algorithms_enabled,
    get_float32_matmul_precision,
    get_num_interop_threads,
    is_deterministic_algorithms_warn_only_enabled,
    set_default_tensor_type,
    set_float32_matmul_precision,
    set_flush_denormal,
    set_num_interop_threads,
    use_deterministic_algorithms,
)
from .doctor import guard as _guard, ledger as _ledger  # diagnosis listens to what is above
from .autograd import enable_grad, inference_mode, no_grad, set_grad_enabled
from .autograd.anomaly_mode import is_anomaly_check_nan_enabled, is_anomaly_enabled, set_anomaly_enabled
from .compiler import compile
from .cuda import amp as _cuda_amp  # makes `cuda.amp`, which stands above `cuda`
from .serialization import load, save
from .version import __version__

float, double, half = _C.float, _C.double, _C.half
int, long, short = _C.int, _C.long, _C.short
newaxis = None
inf, pi, e = 1e400, 3.141592653589793, 2.718281828459045
nan = inf - inf

from ._global_autocast import Switched as _Switched
from ._composed.shape_ops import *
from ._composed.elementwise import *
from ._composed.creation import *
from ._composed.in_place import *
from ._composed.properties import *
from ._composed.sort_search import *
from ._composed.products import *
from ._composed.random import *
from ._composed.reduce import *
from ._composed.scatter import *
from ._ops import *
from ._ops import abs, add, cat, clamp, div, mul, neg, sub
from ._functions import where
from .linalg import cholesky, det, inv as inverse, logdet, matrix_exp, matrix_power, old_svd as svd, pinv as pinverse, qr, slogdet

from .nn._resample import grid_sampler
from .nn.functional import (
    adaptive_avg_pool1d,
    adaptive_max_pool1d,
    alpha_dropout,
    avg_pool1d,
    channel_shuffle,
    conv1d,
    conv2d,
    conv3d,
    conv_tbc,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    feature_dropout,
    group_norm,
    layer_norm,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    pairwise_distance,
    pixel_shuffle,
    pixel_unshuffle,
    rms_norm,
)

__array_api_version__ = "2024.12"


def __array_namespace_info__() -> _Any:
    """Facts of the array API's namespace: capabilities, devices, dtypes."""
    from ._array_api import __array_namespace_info__ as info
    return info()


def _array_namespace(self: Tensor, *, api_version: _Any = None) -> _Any:
    """The Python array API's functions for tensors. ValueError for a version that is not there."""
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(f"__array_namespace__: version {api_version!r} is not supported; 2024.12 is")
    from . import _array_api
    return _array_api


Tensor.__array_namespace__ = _array_namespace  # type: ignore[method-assign]


concat = concatenate = cat
multiply, subtract, divide, true_divide = mul, sub, div, div
absolute, negative, clip = abs, neg, clamp
dropout = nn.functional.dropout
batch_norm, instance_norm = nn.functional.batch_norm, nn.functional.instance_norm
embedding, embedding_bag = nn.functional.embedding, nn.functional.embedding_bag

_LATER = frozenset({  # modules
    "_dynamo", "accelerator", "bench", "compiler", "distributed", "distributions", "doctor", "func", "hub", "jit",
    "formats", "keras", "multiprocessing", "random", "special", "testing", "training", "types",
})
_COMPLEX = frozenset({"complex", "fft", "istft", "polar", "stft", "view_as_complex", "view_as_real"})
_OF_KERAS = frozenset({"Policy", "global_policy", "set_global_policy"})


def __getattr__(name: str) -> _Any:
    """What scripts ask for now and then is loaded when they do."""
    if name in _LATER:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    if name == "explain":
        from .doctor.explain import explain

        return explain
    if name in _OF_KERAS:
        from .keras import mixed_precision

        return getattr(mixed_precision, name)
    if name.endswith("Tensor") and name[0] != "_":
        from ._typed import types_of

        globals().update(types_of("cpu"))
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}" + ("; there are no complex tensors here" if name in _COMPLEX else ""))


def __dir__() -> _Any:
    return sorted({*globals(), *_LATER, *_OF_KERAS, "enable_autocast", "explain"})


_sys.modules[__name__].__class__ = _Switched  # `enable_autocast`

_wanted = _os.environ.get("AMPC_DOCTOR", "")
if _wanted not in ("", "0", "1"):
    raise ValueError(f"AMPC_DOCTOR is {_wanted}; expected 0 or 1, or leave it unset")
if _wanted == "1":  # around the whole script, of this thread
    import atexit as _atexit

    from .doctor.nonfinite import Doctor as _Doctor

    _doctor = _Doctor().__enter__()
    _atexit.register(lambda: print(f"ampc.doctor: {_doctor.report()}", file=_sys.stderr))
