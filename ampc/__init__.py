"""ampc: mixed-precision training. ``import ampc as torch`` and an AMP script runs unchanged."""

import glob as _glob
import os as _os

from . import _C

for _path in _glob.glob(_os.path.join(_os.path.dirname(__file__), "_libs", "*openblas*")):
    _C._set_blas(_path)

from ._C import (  # noqa: E402
    Tensor, bfloat16, bool, dtype, float16, float32, float64, from_numpy, get_default_dtype, get_num_threads, int8, int16, int32, int64,
    is_grad_enabled, is_inference_mode_enabled, promote_types, result_type, set_default_dtype, set_num_threads, uint8,
)
from ._creation import (  # noqa: E402
    Generator, arange, as_tensor, default_generator, empty, empty_like, eye, finfo, full, full_like, get_rng_state, iinfo,
    initial_seed, linspace, manual_seed, ones, ones_like, rand, rand_like, randint, randn, randn_like, randperm, seed, set_rng_state,
    tensor, zeros, zeros_like,
)
from ._device import Size, device, get_default_device, set_default_device  # noqa: E402
from ._printing import set_printoptions  # noqa: E402
from . import _tensor  # noqa: E402,F401  (attaches methods to Tensor)
from . import autograd  # noqa: E402
from .autograd import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: E402
from . import amp, cpu, cuda, nn, optim  # noqa: E402
from .amp import (  # noqa: E402
    GradScaler, autocast, clear_autocast_cache, get_autocast_dtype, is_autocast_cache_enabled, is_autocast_enabled,
    set_autocast_cache_enabled, set_autocast_dtype, set_autocast_enabled,
)
from .amp.autocast_mode import (  # noqa: E402
    autocast_decrement_nesting, autocast_increment_nesting, get_autocast_cpu_dtype, get_autocast_gpu_dtype, is_autocast_cpu_enabled,
    set_autocast_cpu_dtype, set_autocast_cpu_enabled, set_autocast_gpu_dtype,
)
from ._functions import (  # noqa: E402
    allclose, chunk, equal, is_floating_point, is_tensor, masked_select, movedim, nonzero, numel, repeat_interleave, split, unbind,
)

__version__ = "0.1.0"

float, double, half = _C.float, _C.double, _C.half
int, long, short = _C.int, _C.long, _C.short
FloatTensor = Tensor
inf, pi, e = 1e400, 3.141592653589793, 2.718281828459045
nan = inf - inf

_FUNCTION = 1  # bit of a row's home
for _row in _C.op_table():
    if _row["home"] & _FUNCTION:
        globals()[_row["python"]] = _C._functions[_row["python"]]
        if _row["python"] + "_" in _C._functions:
            globals()[_row["python"] + "_"] = _C._functions[_row["python"] + "_"]
del _row, _path

concat = concatenate = _C._functions["cat"]
multiply, subtract, divide, true_divide = (_C._functions[_n] for _n in ("mul", "sub", "div", "div"))
absolute, negative, clip = (_C._functions[_n] for _n in ("abs", "neg", "clamp"))
dropout = _C._functions["dropout"]
