"""ampc: mixed-precision training. ``import ampc as torch`` and an AMP script runs unchanged.

PYTEST_DONT_REWRITE: pytest would warn that it came too late where ``ampc run`` starts it, and has no assertions to explain here."""

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
from ._process.cuda_folders import folders as _folders

_C._cuda_set_paths(":".join(_folders()))

# A name as itself is one that this package exports, by the rules of type checkers.
from . import (
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
from ._tensor import interop as _interop  # attaches the protocols of sharing memory
from ._tensor import methods as _methods  # attaches methods to Tensor
from ._tensor import other_kinds as _other_kinds  # and rarer ones
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
from ._tensor.unsupported_dtypes import *
from ._tensor.creation import *
from ._tensor.device import *
from ._tensor.finfo import *
from ._tensor.interop import from_dlpack as from_dlpack
from ._tensor.printing import set_printoptions as set_printoptions
from .amp import (
    GradScaler as GradScaler,
    clear_autocast_cache as clear_autocast_cache,
    get_autocast_dtype as get_autocast_dtype,
    is_autocast_cache_enabled as is_autocast_cache_enabled,
    set_autocast_cache_enabled as set_autocast_cache_enabled,
    set_autocast_dtype as set_autocast_dtype,
    set_autocast_enabled as set_autocast_enabled,
)
from .amp.autocast_mode import *
from ._process.settings import *
from ._messages.once import is_warn_always_enabled as is_warn_always_enabled, set_warn_always as set_warn_always
from .doctor import digits as _digits, guard as _guard, ledger as _ledger, ranks as _ranks  # diagnosis listens to what is above
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
from .cuda.amp import autocast as _cuda_autocast  # makes `cuda.amp`, which stands above `cuda`
from .cuda.graphed import graph_step as _graph_step, make_graphed_callables as _make_graphed_callables  # stands above it, too
from .serialization import load as load, save as save
from .version import __version__

from ._names.missing import absent_from as _absent_from

vars(_C).update(__getattr__=_absent_from("ampc._C"), __path__=[])  # torch's names in its own core, of the table in _names
float, double, half = _C.float, _C.double, _C.half
int, long, short = _C.int, _C.long, _C.short
newaxis = None
cuda.graph_step, cuda.make_graphed_callables = _graph_step, _make_graphed_callables  # type: ignore[misc]
inf, pi, e = 1e400, 3.141592653589793, 2.718281828459045
nan = inf - inf

from .amp._global_autocast import Switched as _Switched
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
from ._tensor.functions import *
from ._tensor.layout import clone as clone
from .linalg import lu_with_info as lu

from .nn._further import embedding_renorm_ as embedding_renorm_
from .nn._recurrent import gru as gru, lstm as lstm, rnn_relu as rnn_relu, rnn_tanh as rnn_tanh
from .nn._resample import grid_sampler as grid_sampler
from .nn._resample import constant_pad_nd as constant_pad_nd
from .nn.functional import (
    max_pool1d_with_indices as max_pool1d_with_indices,
    native_channel_shuffle as native_channel_shuffle,
)

__array_api_version__ = "2024.12"


def __array_namespace_info__() -> _Any:
    """Facts of the array API's namespace: capabilities, devices, dtypes."""
    from ._tensor.array_api import __array_namespace_info__ as info
    return info()


def _array_namespace(self: Tensor, *, api_version: _Any = None) -> _Any:
    """The Python array API's functions for tensors. ValueError for a version that is not there."""
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(f"__array_namespace__: version {api_version!r} is not supported; 2024.12 is")
    from ._tensor import array_api as _array_api
    return _array_api


Tensor.__array_namespace__ = _array_namespace  # type: ignore[method-assign]


is_distributed = Tensor.is_distributed
as_strided_, detach_, fill_, resize_as_, zero_ = Tensor.as_strided_, Tensor.detach_, Tensor.fill_, Tensor.resize_as_, Tensor.zero_

if _typing.TYPE_CHECKING:  # what `__getattr__` loads; `doctor` is a module that can be called, which types have no word for
    import builtins as _builtins

    from . import (
        _dynamo as _dynamo,
        _utils as _utils,
        accelerator as accelerator,
        bench as bench,
        compiler as compiler,
        distributed as distributed,
        distributions as distributions,
        errors as errors,
        fft as fft,
        formats as formats,
        func as func,
        futures as futures,
        hub as hub,
        jit as jit,
        keras as keras,
        library as library,
        multiprocessing as multiprocessing,
        ops as ops,
        overrides as overrides,
        profiler as profiler,
        random as random,
        return_types as return_types,
        signal as signal,
        special as special,
        storage as storage,
        testing as testing,
        torch_version as torch_version,
        training as training,
        types as types,
    )
    from .nn._flat import *
    from ._tensor.array_api import (
        astype as astype,
        bitwise_invert as bitwise_invert,
        broadcast_arrays as broadcast_arrays,
        cumulative_prod as cumulative_prod,
        cumulative_sum as cumulative_sum,
        expand_dims as expand_dims,
        imag as imag,
        isdtype as isdtype,
        matrix_transpose as matrix_transpose,
        permute_dims as permute_dims,
        repeat as repeat,
        take_along_axis as take_along_axis,
        unique_all as unique_all,
        unique_counts as unique_counts,
        unique_inverse as unique_inverse,
        unique_values as unique_values,
        unstack as unstack,
        vecdot as vecdot,
    )
    from ._tensor.buffers import from_file as from_file, frombuffer as frombuffer
    from .doctor import doctor as doctor
    from .doctor.explain import explain as explain
    from .func import vmap as vmap
    from .keras.mixed_precision import (
        Policy as Policy,
        global_policy as global_policy,
        set_global_policy as set_global_policy,
    )
    from .nn.utils.parametrizations import norm_except_dim as norm_except_dim
    from .random import thread_safe_generator as thread_safe_generator
    from .storage import TypedStorage as TypedStorage, UntypedStorage as UntypedStorage, is_storage as is_storage
    from .signal.windows import (
        bartlett_window as bartlett_window,
        blackman_window as blackman_window,
        hamming_window as hamming_window,
        hann_window as hann_window,
        kaiser_window as kaiser_window,
    )

    enable_autocast: _builtins.bool

_LATER = frozenset({  # modules
    "_dynamo", "_library_functions", "_utils", "accelerator", "bench", "compiler", "distributed", "distributions", "doctor", "errors", "fft",
    "func", "futures", "hub", "jit", "library", "formats", "keras", "multiprocessing", "ops", "overrides", "profiler", "random", "return_types",
    "signal", "special", "storage", "testing", "torch_version", "training", "types",
})
_COMPLEX = frozenset({"complex", "istft", "polar", "stft", "view_as_complex", "view_as_real"})
_FROM = {  # functions and classes, by the module that they are loaded with
    **dict.fromkeys(("batch_norm", "embedding", "instance_norm"), "nn._flat"),  # their arguments come in another order than nn.functional's
    **dict.fromkeys(("affine_grid_generator", "grid_sampler_2d", "grid_sampler_3d", "native_dropout"), "nn._flat"),
    **dict.fromkeys(("binary_cross_entropy_with_logits", "cosine_embedding_loss", "ctc_loss", "hinge_embedding_loss", "kl_div", "margin_ranking_loss",
                     "poisson_nll_loss", "triplet_margin_loss"), "nn._flat"),
    **{name + end: "nn._flat" for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout") for end in ("", "_")},
    "explain": "doctor.explain", "vmap": "func", "thread_safe_generator": "random", "frombuffer": "_tensor.buffers", "from_file": "_tensor.buffers",
    "norm_except_dim": "nn.utils.parametrizations",
    **dict.fromkeys(("TypedStorage", "UntypedStorage", "is_storage"), "storage"),
    **dict.fromkeys(("Policy", "global_policy", "set_global_policy"), "keras.mixed_precision"),
    # the array API's names that torch has no function of
    **dict.fromkeys(("astype", "bitwise_invert", "broadcast_arrays", "cumulative_prod", "cumulative_sum", "expand_dims", "imag", "isdtype",
                     "matrix_transpose", "permute_dims", "repeat", "take_along_axis", "unique_all", "unique_counts", "unique_inverse",
                     "unique_values", "unstack", "vecdot"), "_tensor.array_api"),
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
    if name.startswith("_foreach_"):
        from ._tensor import foreach as _foreach

        if name in vars(_foreach):
            return getattr(_foreach, name)
    if name.endswith("Tensor") and name[0] != "_":
        from ._tensor.typed import types_of

        found = types_of("cpu")
        globals().update(found)
        if name in found:
            return found[name]
    if name.endswith("Storage") and name[0] != "_":
        from .storage import LEGACY

        globals().update(LEGACY)
        if name in LEGACY:
            return LEGACY[name]
    if name in _COMPLEX:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; ampc has no complex tensors (docs/architecture/complex.md says why)")
    return _absent_from(__name__)(name)


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
    _atexit.register(lambda: print(f"ampc.doctor: {_doctor.closing()}", file=_sys.stderr))
