"""ampc: mixed-precision training. ``import ampc as torch`` and an AMP script runs unchanged."""

import glob as _glob
import os as _os
import sys as _sys
import typing as _typing
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

# A name as itself is one that this package exports, by the rules of type checkers.
from . import (
    _interop,  # attaches the protocols of sharing memory
    _tensor,  # attaches methods to Tensor
    _tensor_more,  # and rarer ones
    _composed,  # and more
    amp as amp,
    autograd as autograd,
    backends as backends,
    cpu as cpu,
    cuda as cuda,
    linalg as linalg,
    nn as nn,
    optim as optim,
    serialization as serialization,
    utils as utils,
)
from ._C import (
    OutOfMemoryError as OutOfMemoryError,
    Tensor as Tensor,
    bfloat16 as bfloat16,
    bool as bool,
    dtype as dtype,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    from_numpy as from_numpy,
    get_default_dtype as get_default_dtype,
    get_num_threads as get_num_threads,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    is_grad_enabled as is_grad_enabled,
    is_inference_mode_enabled as is_inference_mode_enabled,
    promote_types as promote_types,
    result_type as result_type,
    set_default_dtype as set_default_dtype,
    set_num_threads as set_num_threads,
    uint8 as uint8,
)
from ._unsupported_dtypes import (
    cdouble as cdouble,
    cfloat as cfloat,
    complex64 as complex64,
    complex128 as complex128,
    float8_e4m3fn as float8_e4m3fn,
    float8_e4m3fnuz as float8_e4m3fnuz,
    float8_e5m2 as float8_e5m2,
    float8_e5m2fnuz as float8_e5m2fnuz,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
)
from ._creation import (
    Generator as Generator,
    arange as arange,
    as_tensor as as_tensor,
    default_generator as default_generator,
    empty as empty,
    empty_like as empty_like,
    eye as eye,
    full as full,
    full_like as full_like,
    get_rng_state as get_rng_state,
    initial_seed as initial_seed,
    linspace as linspace,
    logspace as logspace,
    manual_seed as manual_seed,
    ones as ones,
    ones_like as ones_like,
    rand as rand,
    rand_like as rand_like,
    randint as randint,
    randn as randn,
    randn_like as randn_like,
    randperm as randperm,
    range as range,
    seed as seed,
    set_rng_state as set_rng_state,
    tensor as tensor,
    zeros as zeros,
    zeros_like as zeros_like,
)
from ._device import (
    Size as Size,
    channels_last as channels_last,
    channels_last_3d as channels_last_3d,
    contiguous_format as contiguous_format,
    device as device,
    get_default_device as get_default_device,
    layout as layout,
    memory_format as memory_format,
    preserve_format as preserve_format,
    set_default_device as set_default_device,
    strided as strided,
)
from ._finfo import finfo as finfo, iinfo as iinfo
from ._functions import (
    allclose as allclose,
    chunk as chunk,
    equal as equal,
    is_floating_point as is_floating_point,
    is_tensor as is_tensor,
    nonzero as nonzero,
    numel as numel,
    split as split,
    unbind as unbind,
)
from ._interop import from_dlpack as from_dlpack
from ._printing import set_printoptions as set_printoptions
from .amp import (
    GradScaler as GradScaler,
    autocast as autocast,
    clear_autocast_cache as clear_autocast_cache,
    get_autocast_dtype as get_autocast_dtype,
    is_autocast_cache_enabled as is_autocast_cache_enabled,
    is_autocast_enabled as is_autocast_enabled,
    set_autocast_cache_enabled as set_autocast_cache_enabled,
    set_autocast_dtype as set_autocast_dtype,
    set_autocast_enabled as set_autocast_enabled,
)
from .amp.autocast_mode import (
    autocast_decrement_nesting as autocast_decrement_nesting,
    autocast_increment_nesting as autocast_increment_nesting,
    get_autocast_cpu_dtype as get_autocast_cpu_dtype,
    get_autocast_gpu_dtype as get_autocast_gpu_dtype,
    is_autocast_cpu_enabled as is_autocast_cpu_enabled,
    set_autocast_cpu_dtype as set_autocast_cpu_dtype,
    set_autocast_cpu_enabled as set_autocast_cpu_enabled,
    set_autocast_gpu_dtype as set_autocast_gpu_dtype,
)
from ._settings import (
    are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled,
    get_deterministic_debug_mode as get_deterministic_debug_mode,
    get_float32_matmul_precision as get_float32_matmul_precision,
    get_num_interop_threads as get_num_interop_threads,
    is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled,
    set_default_tensor_type as set_default_tensor_type,
    set_deterministic_debug_mode as set_deterministic_debug_mode,
    set_float32_matmul_precision as set_float32_matmul_precision,
    set_flush_denormal as set_flush_denormal,
    set_num_interop_threads as set_num_interop_threads,
    use_deterministic_algorithms as use_deterministic_algorithms,
)
from .doctor import guard as _guard, ledger as _ledger  # diagnosis listens to what is above
from .autograd import (
    enable_grad as enable_grad,
    inference_mode as inference_mode,
    no_grad as no_grad,
    set_grad_enabled as set_grad_enabled,
)
from .autograd.anomaly_mode import (
    is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled,
    is_anomaly_enabled as is_anomaly_enabled,
    set_anomaly_enabled as set_anomaly_enabled,
)
from .compiler import compile as compile
from .cuda import amp as _cuda_amp  # makes `cuda.amp`, which stands above `cuda`
from .serialization import load as load, save as save
from .version import __version__

float, double, half = _C.float, _C.double, _C.half
int, long, short = _C.int, _C.long, _C.short
newaxis = None
inf, pi, e = 1e400, 3.141592653589793, 2.718281828459045
nan = inf - inf

from ._global_autocast import Switched as _Switched
from ._composed.shape_ops import *
from ._composed.copies import *
from ._composed.creation import *
from ._composed.in_place import *
from ._composed.properties import *
from ._composed.sort_search import *
from ._composed.products import *
from ._composed.random import *
from ._composed.reduce import *
from ._ops import *
from ._ops import (
    abs as abs,
    add as add,
    cat as cat,
    clamp as clamp,
    div as div,
    mul as mul,
    neg as neg,
    sub as sub,
)
from ._functions import where as where
from ._layout import clone as clone
from .linalg import lu_with_info as lu

from .nn._further import embedding_renorm_ as embedding_renorm_
from .nn._recurrent import gru as gru, lstm as lstm, rnn_relu as rnn_relu, rnn_tanh as rnn_tanh
from .nn._resample import grid_sampler as grid_sampler
from .nn._resample import constant_pad_nd as constant_pad_nd
from .nn.functional import (
    adaptive_avg_pool1d as adaptive_avg_pool1d,
    adaptive_max_pool1d as adaptive_max_pool1d,
    avg_pool1d as avg_pool1d,
    channel_shuffle as channel_shuffle,
    conv1d as conv1d,
    conv2d as conv2d,
    conv3d as conv3d,
    conv_tbc as conv_tbc,
    conv_transpose1d as conv_transpose1d,
    conv_transpose2d as conv_transpose2d,
    conv_transpose3d as conv_transpose3d,
    ctc_loss as ctc_loss,
    group_norm as group_norm,
    layer_norm as layer_norm,
    max_pool1d as max_pool1d,
    max_pool1d_with_indices as max_pool1d_with_indices,
    max_pool2d as max_pool2d,
    max_pool3d as max_pool3d,
    native_channel_shuffle as native_channel_shuffle,
    pairwise_distance as pairwise_distance,
    pixel_shuffle as pixel_shuffle,
    pixel_unshuffle as pixel_unshuffle,
    rms_norm as rms_norm,
    rrelu as rrelu,
    rrelu_ as rrelu_,
)

from .nn.utils.parametrizations import norm_except_dim as norm_except_dim

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


is_distributed = Tensor.is_distributed
as_strided_, detach_, fill_, resize_as_, zero_ = Tensor.as_strided_, Tensor.detach_, Tensor.fill_, Tensor.resize_as_, Tensor.zero_
batch_norm, instance_norm = nn.functional.batch_norm, nn.functional.instance_norm
embedding, embedding_bag = nn.functional.embedding, nn.functional.embedding_bag

if _typing.TYPE_CHECKING:  # what `__getattr__` loads; `doctor` is a module that can be called, which types have no word for
    import builtins as _builtins

    from . import (
        _dynamo as _dynamo,
        accelerator as accelerator,
        bench as bench,
        compiler as compiler,
        distributed as distributed,
        distributions as distributions,
        formats as formats,
        func as func,
        hub as hub,
        jit as jit,
        keras as keras,
        multiprocessing as multiprocessing,
        random as random,
        signal as signal,
        special as special,
        testing as testing,
        training as training,
        types as types,
    )
    from .nn._flat import (
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
    cosine_embedding_loss as cosine_embedding_loss,
    hinge_embedding_loss as hinge_embedding_loss,
    kl_div as kl_div,
    margin_ranking_loss as margin_ranking_loss,
    poisson_nll_loss as poisson_nll_loss,
    triplet_margin_loss as triplet_margin_loss,
        affine_grid_generator as affine_grid_generator,
        alpha_dropout as alpha_dropout,
        alpha_dropout_ as alpha_dropout_,
        dropout as dropout,
        dropout_ as dropout_,
        feature_alpha_dropout as feature_alpha_dropout,
        feature_alpha_dropout_ as feature_alpha_dropout_,
        feature_dropout as feature_dropout,
        feature_dropout_ as feature_dropout_,
        grid_sampler_2d as grid_sampler_2d,
        grid_sampler_3d as grid_sampler_3d,
        native_dropout as native_dropout,
    )
    from ._buffers import from_file as from_file, frombuffer as frombuffer
    from .doctor import doctor as doctor
    from .doctor.explain import explain as explain
    from .func import vmap as vmap
    from .keras.mixed_precision import (
        Policy as Policy,
        global_policy as global_policy,
        set_global_policy as set_global_policy,
    )
    from .random import thread_safe_generator as thread_safe_generator
    from .signal.windows import (
        bartlett_window as bartlett_window,
        blackman_window as blackman_window,
        hamming_window as hamming_window,
        hann_window as hann_window,
        kaiser_window as kaiser_window,
    )

    enable_autocast: _builtins.bool

_LATER = frozenset({  # modules
    "_dynamo", "accelerator", "bench", "compiler", "distributed", "distributions", "doctor", "func", "hub", "jit",
    "formats", "keras", "multiprocessing", "random", "signal", "special", "testing", "training", "types",
})
_COMPLEX = frozenset({"complex", "fft", "istft", "polar", "stft", "view_as_complex", "view_as_real"})
_FROM = {  # functions and classes, by the module that they are loaded with
    **dict.fromkeys(("affine_grid_generator", "grid_sampler_2d", "grid_sampler_3d", "native_dropout"), "nn._flat"),
    **dict.fromkeys(("binary_cross_entropy_with_logits", "cosine_embedding_loss", "hinge_embedding_loss", "kl_div", "margin_ranking_loss",
                     "poisson_nll_loss", "triplet_margin_loss"), "nn._flat"),
    **{name + end: "nn._flat" for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout") for end in ("", "_")},
    "explain": "doctor.explain", "vmap": "func", "thread_safe_generator": "random", "frombuffer": "_buffers", "from_file": "_buffers",
    **dict.fromkeys(("Policy", "global_policy", "set_global_policy"), "keras.mixed_precision"),
    **dict.fromkeys(("bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"), "signal.windows"),
}


def __getattr__(name: str) -> _Any:
    """What scripts ask for now and then is loaded when they do."""
    if name in _LATER or name in _FROM:
        import importlib

        module = importlib.import_module(f"{__name__}.{_FROM.get(name, name)}")
        found = module if name in _LATER else getattr(module, name)
        globals()[name] = found
        return found
    if name.endswith("Tensor") and name[0] != "_":
        from ._typed import types_of

        found = types_of("cpu")
        globals().update(found)
        if name in found:
            return found[name]
    from ._missing import absent_from

    if name in _COMPLEX:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; ampc has no complex tensors (docs/architecture/complex.md says why)")
    return absent_from(__name__)(name)


def __dir__() -> _Any:
    return sorted({*globals(), *_LATER, *_FROM, "enable_autocast"})


_sys.modules[__name__].__class__ = _Switched  # `enable_autocast`

_wanted = _os.environ.get("AMPC_DOCTOR", "")
if _wanted not in ("", "0", "1"):
    raise ValueError(f"AMPC_DOCTOR is {_wanted}; expected 0 or 1, or leave it unset")
if _wanted == "1":  # around the whole script, of this thread
    import atexit as _atexit

    from .doctor.nonfinite import Doctor as _Doctor

    _doctor = _Doctor().__enter__()
    _atexit.register(lambda: print(f"ampc.doctor: {_doctor.report()}", file=_sys.stderr))
