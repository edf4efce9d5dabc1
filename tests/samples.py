"""One sample, at least, for every operator of the table: arguments, and a float64 NumPy reference.

Arguments hold NumPy arrays where the operator takes tensors; ``to_ampc`` and ``to_torch`` convert them.
``torch`` names torch's function where it is not ``torch.<python name>``; None says torch has none.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Callable, Optional

import numpy as np
from composed_samples import COMPOSED
from linalg_samples import LINALG
from nn_samples import NN
from references import (
    R,
    batch_norm,
    bessel,
    between_poles,
    columns,
    convolve,
    ctc,
    digamma,
    erf,
    erfinv,
    exact,
    group_norm,
    gru_cell,
    hurwitz,
    ints,
    last_index,
    layer_norm,
    linalg,
    linear_scan,
    logsumexp,
    lower_gamma,
    lstm_cell,
    lstm_cell_of_torch,
    mask,
    nll,
    polygamma,
    positive,
    real,
    recurrence,
    rnn_layer,
    scatter_add,
    softmax,
    solid,
    solved,
    spread,
    symmetric,
)
from sample import F, Sample, pointwise, special

import ampc

FALLING = np.array([3, 2, 1])  # sequences of each step of a packed batch
ON_CPU = FALLING.copy()  # the same for operators that have it on the CPU wherever the rest is
_as_strided = [Sample((real(3, 4), real(2, 2), [2, 2], [4, 1], 5), reference=None, torch=None)]

SAMPLES: dict[str, list[Sample]] = {
    "neg": pointwise(np.negative, real(3, 4)),
    "abs": pointwise(np.abs, real(3, 4)),
    "sign": pointwise(np.sign, real(3, 4)),
    "square": pointwise(np.square, real(3, 4)),
    "floor": pointwise(np.floor, real(3, 4)),
    "ceil": pointwise(np.ceil, real(3, 4)),
    "round": pointwise(np.round, real(3, 4)),
    "trunc": pointwise(np.trunc, real(3, 4)),
    "exp": pointwise(np.exp, real(3, 4)),
    "log": pointwise(np.log, positive(3, 4)),
    "sqrt": pointwise(np.sqrt, positive(3, 4)),
    "rsqrt": pointwise(lambda x: 1 / np.sqrt(x), positive(3, 4)),
    "reciprocal": pointwise(np.reciprocal, real(3, 4)),
    "sin": pointwise(np.sin, real(3, 4)),
    "cos": pointwise(np.cos, real(3, 4)),
    "erf": pointwise(erf, real(3, 4)),
    "tanh": pointwise(np.tanh, real(3, 4)),
    "sigmoid": pointwise(lambda x: 1 / (1 + np.exp(-x)), real(3, 4)),
    "relu": pointwise(lambda x: np.maximum(x, 0), real(3, 4)),
    "silu": pointwise(lambda x: x / (1 + np.exp(-x)), real(3, 4), torch=F("silu")),
    "tan": pointwise(np.tan, real(3, 4)),
    "asin": pointwise(np.arcsin, R.uniform(-0.9, 0.9, (3, 4))),
    "acos": pointwise(np.arccos, R.uniform(-0.9, 0.9, (3, 4))),
    "atan": pointwise(np.arctan, real(3, 4)),
    "sinh": pointwise(np.sinh, real(3, 4)),
    "cosh": pointwise(np.cosh, real(3, 4)),
    "asinh": pointwise(np.arcsinh, real(3, 4)),
    "acosh": pointwise(np.arccosh, positive(3, 4) + 1),
    "atanh": pointwise(np.arctanh, R.uniform(-0.9, 0.9, (3, 4))),
    "exp2": pointwise(np.exp2, real(3, 4)),
    "expm1": pointwise(np.expm1, real(3, 4)),
    "log1p": pointwise(np.log1p, positive(3, 4)),
    "log2": pointwise(np.log2, positive(3, 4)) + pointwise(np.log2, np.array([0.5, 2.0, 8.0, 1024.0])),
    "log10": pointwise(np.log10, positive(3, 4)),
    "erfc": pointwise(lambda x: np.vectorize(math.erfc)(x), real(3, 4)),
    "erfinv": [Sample((erf(R.uniform(-1.5, 1.5, (3, 4))),)),
               Sample((np.array([0.0, 1.0, -1.0, math.erf(0.5), math.erf(-1.25)]),), reference=lambda x: np.array([erfinv(v) for v in x]), grad=False)],
    "lgamma": pointwise(np.vectorize(math.lgamma), between_poles(3, 4)) + pointwise(np.vectorize(math.lgamma), positive(3, 4)),
    # torch's derivative of digamma has half of float64's digits
    "digamma": pointwise(digamma, between_poles(3, 4), torch=None) + pointwise(digamma, positive(3, 4), torch_grad=False),
    "polygamma_of": [Sample((positive(3, 4), n), reference=lambda x, n: polygamma(n, x), torch=None) for n in (0, 1, 2)],
    "polygamma": [Sample((n, positive(3, 4)), reference=polygamma, torch=None if n == 1 else "", torch_grad=n > 1, half=n < 5) for n in (0, 1, 2, 5)]
                 + [Sample((2, R.uniform(-0.8, -0.2, 4) - np.arange(4)), reference=polygamma, half=False)],
    "polygamma_method": [Sample((positive(3, 4), 2), reference=lambda x, n: polygamma(n, x), torch=None)],
    "mvlgamma": [Sample((positive(3, 4) + 2, 3), reference=None),
                 Sample((positive(3, 4), 1), reference=lambda x, p: np.vectorize(math.lgamma)(x))],
    "igamma": [Sample((positive(3, 4), positive(4)), reference=lower_gamma, frozen=(0,)),
               Sample((R.uniform(200, 400, (3, 4)), R.uniform(200, 400, 4)), reference=lower_gamma, frozen=(0,), half=False, torch=None)],  # torch's: 10 digits
    "igammac": [Sample((positive(3, 4), positive(4)), reference=lambda a, x: 1 - lower_gamma(a, x), frozen=(0,)),
               Sample((R.uniform(200, 400, (3, 4)), R.uniform(200, 400, 4)), reference=lambda a, x: 1 - lower_gamma(a, x), frozen=(0,), half=False, torch=None)],  # torch's: 10 digits
    # what a draw is, and how it moves with its parameters, test_distributions.py asks
    **{name: [Sample((positive(3, 4), R.random(4)), torch=None, grad=False, half=False)] for name in ("log_gamma_draw", "poisson_draw", "von_mises_draw")},
    "binomial_draw": [Sample((positive(3, 4) * 9, R.random(4), R.random((3, 1))), torch=None, grad=False, half=False)],
    "gamma_slope": [Sample((positive(3, 4), positive(4)), torch=None, grad=False, half=False)],
    "beta_slope": [Sample((R.random((3, 4)), positive(4), positive(4) + 3), torch=None, grad=False, half=False)],
    "gamma_of": [Sample((positive(3, 4), positive(3, 4)), reference=lambda v, a: v, torch=None, grad=False, half=False)],
    "dirichlet_of": [Sample((R.dirichlet(np.ones(4), 3), positive(3, 4)), reference=lambda v, a: v, torch=None, grad=False, half=False)],
    **{name: [Sample((positive(3, 4),), torch=None, grad=False, half=False)] for name in ("standard_gamma", "sample_dirichlet")},
    "zeta": [Sample((positive(3, 4) + 1.2, positive(4)), reference=hurwitz, torch=special("zeta"), frozen=(0,))],
    "i0": pointwise(np.i0, real(3, 4) * 3),
    **{name: pointwise(None, real(3, 4) * 2, torch=special(name)) for name in ("i1", "i0e", "i1e")},
    # torch's have 7 of float64's digits
    **{f"bessel_j{n}": pointwise(functools.partial(bessel, "j", n), real(3, 4) * 4, torch=None) for n in (0, 1)},
    **{f"bessel_y{n}": pointwise(functools.partial(bessel, "y", n), positive(3, 4), torch=None) for n in (0, 1)},
    "spherical_bessel_j0": pointwise(lambda x: np.sinc(x / np.pi), real(3, 4), torch=special("spherical_bessel_j0"), torch_grad=False),
    **{name: pointwise(None, positive(3, 4) * 2, torch=special(name), torch_grad=False)
       for name in ("modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1")},
    "airy_ai": pointwise(None, real(3, 4) * 4, torch=None, grad=False),  # torch's has 5 digits; test_special.py has numbers of 120
    **{f"{name}_polynomial_{kind}": [Sample((real(3, 4), np.array([0.0, 1.0, 5.0, 12.0])), torch=special(f"{name}_polynomial_{kind}"), grad=False, half=False)]
       for name, kinds in (("chebyshev", "tuvw"), ("shifted_chebyshev", "tuvw"), ("hermite", ("h", "he")), ("laguerre", "l"), ("legendre", "p")) for kind in kinds},
    "polynomial": [Sample((R.uniform(-1, 1, (3, 4)), np.array([0.0, 1.0, 5.0, 12.0]), 0), reference=lambda x, n, _: np.cos(n * np.arccos(x)), torch=None, grad=False, half=False)],
    "erfcx": pointwise(lambda x: np.vectorize(lambda v: math.exp(v * v) * math.erfc(v))(x), real(3, 4), torch=special("erfcx")),
    "ndtr": pointwise(lambda x: np.vectorize(lambda v: math.erfc(-v / math.sqrt(2)) / 2)(x), real(3, 4), torch=special("ndtr")),
    "log_ndtr": pointwise(lambda x: np.vectorize(lambda v: math.log(math.erfc(-v / math.sqrt(2)) / 2))(x), real(3, 4), torch=special("log_ndtr")),
    "ndtri": pointwise(None, R.uniform(0.05, 0.95, (3, 4)), torch=special("ndtri")),
    "entr": pointwise(lambda x: -x * np.log(x), positive(3, 4), torch=special("entr"))
            + pointwise(lambda x: np.where(x == 0, 0, -np.inf), np.array([0.0, -1.0]), torch=special("entr"), grad=False),
    "xlog1py": pointwise(lambda x, y: x * np.log1p(y), real(3, 4), positive(4), torch=special("xlog1py")),
    "frexp_mantissa": pointwise(lambda x: np.frexp(x)[0], real(3, 4) * 9, torch=None),
    "frexp_exponent": pointwise(lambda x: np.frexp(x)[1], real(3, 4) * 9, torch=None),
    "frexp": pointwise(np.frexp, real(3, 4) * 9),
    "nextafter_in": [Sample((real(3, 4), real(4), ampc.float32), reference=None, torch=None, grad=False)],
    "nextafter": [Sample((real(3, 4), real(4)), reference=None, grad=False)],
    "frac": pointwise(lambda x: x - np.trunc(x), real(3, 4) * 3),
    "mish": pointwise(lambda x: x * np.tanh(np.log1p(np.exp(x))), real(3, 4), torch=F("mish")),
    "softsign": pointwise(lambda x: x / (1 + np.abs(x)), real(3, 4), torch=F("softsign")),
    "hardswish": pointwise(lambda x: x * np.clip(x + 3, 0, 6) / 6, real(3, 4) * 3, torch=F("hardswish")),
    "hardsigmoid": pointwise(lambda x: np.clip(x + 3, 0, 6) / 6, real(3, 4) * 3, torch=F("hardsigmoid"),
                             torch_grad=False),  # torch rounds 1/6 to float32 even for float64
    "logsigmoid": pointwise(lambda x: -np.log1p(np.exp(-x)), real(3, 4), torch=F("logsigmoid")),
    "signbit": pointwise(np.signbit, np.array([1.0, -1.0, 0.0, -0.0, np.inf, -np.inf])),
    "softplus": [Sample((real(3, 4),), reference=lambda x: np.log1p(np.exp(x)), torch=F("softplus")),
                 Sample((real(3, 4) * 3,), {"beta": 2.0, "threshold": 3.0}, torch=F("softplus"),
                        reference=lambda x, beta, threshold: np.where(beta * x > threshold, x, np.log1p(np.exp(beta * x)) / beta))],
    "elu": [Sample((real(3, 4), 1.3), reference=lambda x, a: np.where(x > 0, x, a * np.expm1(x)), torch=F("elu")),
            Sample((real(3, 4), 1.5), {"scale": 0.5, "input_scale": 2.0}, torch=None, reference=lambda x, a, scale, input_scale: scale * np.where(x > 0, x, a * np.expm1(input_scale * x)))],
    "leaky_relu": [Sample((real(3, 4), 0.2), reference=lambda x, a: np.where(x > 0, x, a * x), torch=F("leaky_relu"))],
    "hardtanh": [Sample((real(3, 4), -0.5, 0.7), reference=np.clip, torch=F("hardtanh"))],
    "hardshrink": [Sample((real(3, 4), 0.6), reference=lambda x, a: np.where(np.abs(x) > a, x, 0))],
    "softshrink": [Sample((real(3, 4), 0.6), reference=lambda x, a: np.sign(x) * np.maximum(np.abs(x) - a, 0), torch=F("softshrink"))],
    "threshold": [Sample((real(3, 4), 0.3, -2.0), reference=lambda x, t, v: np.where(x > t, x, v))],
    "nan_to_num": [Sample((np.array([1.5, np.nan, np.inf, -np.inf]), 0.25, 9.0, -8.0), reference=lambda x, a, b, c: np.nan_to_num(x, True, a, b, c),
                          torch="nan_to_num", grad=False), Sample((real(3, 4), 0.0, 1.0, -1.0), torch="nan_to_num")],
    "clamp_tensor": [Sample((spread(3, 4), spread(4) - 1.0, spread(3, 1) + 1.03), reference=np.clip)],
    "clamp_min_tensor": [Sample((spread(3, 4), spread(4) - 1.0), reference=np.maximum, torch="clamp_min")],
    "clamp_max_tensor": [Sample((spread(3, 4), spread(4) + 1.03), reference=np.minimum, torch="clamp_max")],
    "clamp_min": [Sample((spread(3, 4), 0.5), reference=np.maximum)],
    "clamp_max": [Sample((spread(3, 4), 0.5), reference=np.minimum)],
    "prelu": [Sample((real(2, 3, 4), real(3)), reference=lambda x, w: np.where(x > 0, x, x * w[:, None])),
              Sample((real(3, 4), real(1)), reference=lambda x, w: np.where(x > 0, x, x * w))],
    "glu": [Sample((real(3, 4),), reference=lambda x: x[:, :2] / (1 + np.exp(-x[:, 2:])), torch=F("glu"))],
    "rdiv": [Sample((real(3, 4), 1.5), reference=lambda x, v: v / x, torch=None)],
    "div_rounded": [Sample((real(3, 4) * 5, positive(4)), {"rounding_mode": "floor"}, reference=lambda x, y, rounding_mode: np.floor(x / y), half=False, grad=False),
                    Sample((real(3, 4) * 5, positive(4)), {"rounding_mode": "trunc"}, reference=lambda x, y, rounding_mode: np.trunc(x / y), half=False, grad=False),
                    Sample((ints(9, 4) - 4, ints(3, 4) + 1), {"rounding_mode": "trunc"}, reference=lambda x, y, rounding_mode: np.trunc(x / y).astype(int))],
    "round_decimals": [Sample((real(3, 4) * 9,), {"decimals": 1}, reference=lambda x, decimals: np.round(x, decimals), half=False),
                       Sample((real(3, 4) * 900,), {"decimals": -2}, reference=lambda x, decimals: np.round(x, decimals), half=False)],
    "var_unbiased": [Sample((real(3, 4), 1, False), reference=lambda x, d, u: x.var(d)), Sample((real(3, 4),), {"unbiased": True}, reference=lambda x, unbiased: x.var(ddof=1))],
    "std_unbiased": [Sample((real(3, 4), [0, 1], False, True), reference=lambda x, d, u, k: x.std(keepdims=True))],
    "var_all": [Sample((real(3, 4), False), reference=lambda x, u: x.var())],
    "std_all": [Sample((real(3, 4), True), reference=lambda x, u: x.std(ddof=1))],
    "tanhshrink": pointwise(lambda x: x - np.tanh(x), real(3, 4) * 2, torch=F("tanhshrink")),
    "logit": [Sample((R.uniform(0.1, 0.9, (3, 4)),), reference=lambda x: np.log(x / (1 - x))), Sample((R.uniform(0, 1, (3, 4)), 0.2))],
    "isclose": [Sample((np.array([1.0, 2.0, np.nan, np.inf]), np.array([1.0, 2.5, np.nan, np.inf])), reference=np.isclose, half=False, grad=False),
                Sample((np.array([1.0, np.nan]), np.array([1.1, np.nan])), {"atol": 0.2, "equal_nan": True}, reference=np.isclose, grad=False)],
    "isnan": pointwise(np.isnan, np.array([1.0, np.nan, np.inf, -np.inf])),
    "isinf": pointwise(np.isinf, np.array([1.0, np.nan, np.inf, -np.inf])),
    "isfinite": pointwise(np.isfinite, np.array([1.0, np.nan, np.inf, -np.inf])),
    "logical_not": pointwise(np.logical_not, np.array([0.0, 1.0, -2.0])),
    "bitwise_not": [*pointwise(np.invert, ints(9, 4)), *pointwise(np.invert, np.array([[True, False, True], [False, False, True]]))],
    "gelu": [Sample((real(3, 4),), reference=lambda x: x * 0.5 * (1 + erf(x / math.sqrt(2))), torch=F("gelu")),
             Sample((real(3, 4),), {"approximate": "tanh"}, torch=F("gelu"),
                    reference=lambda x, approximate: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))],
    "clamp": [Sample((real(3, 4), -0.5, 0.6), reference=np.clip), Sample((real(3, 4),), {"max": 0.6}, reference=lambda x, max: np.minimum(x, max))],
    "add": [Sample((real(3, 4), real(4)), reference=np.add), Sample((real(3, 4), real(3, 1)), {"alpha": 2}, reference=lambda x, y, alpha: x + alpha * y)],
    "sub": [Sample((real(3, 4), real(4)), reference=np.subtract), Sample((real(2, 3, 4), real(3, 1)), reference=np.subtract)],
    "mul": pointwise(np.multiply, real(3, 4), real(3, 1)),
    "div": pointwise(np.divide, real(3, 4), positive(4)),
    "floor_divide": pointwise(np.floor_divide, real(3, 4) * 5, positive(4), half=False, torch_grad=False),
    "remainder": pointwise(np.mod, real(3, 4) * 5, positive(4) + 1, half=False),
    "pow": [Sample((positive(3, 4), real(4)), reference=np.power), Sample((real(3, 4), 3), reference=np.power),
            Sample((2.0, real(3, 4)), reference=np.power)],
    "maximum": pointwise(np.maximum, spread(3, 4), spread(4) + 0.13),
    "minimum": pointwise(np.minimum, spread(3, 4), spread(4) + 0.13),
    "fmax": pointwise(np.fmax, np.append(spread(5), np.nan), np.append(np.nan, spread(5) + 0.13), grad=False) + pointwise(np.fmax, spread(3, 4), spread(4) + 0.13),
    "fmin": pointwise(np.fmin, np.append(spread(5), np.nan), np.append(np.nan, spread(5) + 0.13), grad=False) + pointwise(np.fmin, spread(3, 4), spread(4) + 0.13),
    "fmod": pointwise(np.fmod, real(3, 4) * 5, positive(4) + 1, half=False),
    "atan2": pointwise(np.arctan2, real(3, 4), real(3, 1)),
    "hypot": pointwise(np.hypot, real(3, 4), real(4)),
    "copysign": pointwise(np.copysign, real(3, 4), real(4)),
    "logaddexp": pointwise(np.logaddexp, real(3, 4), real(4)),
    "logaddexp2": pointwise(np.logaddexp2, real(3, 4), real(4)),
    "xlogy": pointwise(lambda x, y: x * np.log(y), real(3, 4), positive(4)) + pointwise(lambda x, y: x * 0, np.zeros(3), np.array([0.0, 1.0, 2.0]), grad=False),
    "heaviside": pointwise(np.heaviside, np.array([-1.0, 0.0, 2.0]), np.array([0.5, 0.25, 0.125]), grad=False),
    "bitwise_left_shift": pointwise(np.left_shift, ints(9, 4), ints(5, 4)),
    "bitwise_right_shift": pointwise(np.right_shift, ints(999, 4) - 500, ints(5, 4)),
    **{n: [Sample((ints(3, 3, 4).astype(float), ints(3, 4).astype(float)), reference=getattr(np, f))]
       for n, f in {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
                    "logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor"}.items()},
    "bitwise_and": pointwise(np.bitwise_and, ints(9, 4), ints(9, 4)),
    "bitwise_or": pointwise(np.bitwise_or, ints(9, 4), ints(9, 4)),
    "bitwise_xor": pointwise(np.bitwise_xor, ints(9, 4), ints(9, 4)),
    "masked_fill": [Sample((real(3, 4), mask(4), 2.5), reference=lambda x, m, v: np.where(m, v, x))],
    "tanh_backward": [Sample((real(3), real(3)), reference=lambda g, y: g * (1 - y * y), torch=None)],
    "sigmoid_backward": [Sample((real(3), real(3)), reference=lambda g, y: g * y * (1 - y), torch=None)],
    "relu_backward": [Sample((real(3), real(3)), reference=lambda g, y: g * (y > 0), torch=None)],
    "silu_backward": [Sample((real(3), real(3)), torch=None,
                             reference=lambda g, x: g / (1 + np.exp(-x)) * (1 + x * (1 - 1 / (1 + np.exp(-x)))))],
    "gelu_backward": [Sample((real(3), real(3)), torch=None, reference=lambda g, x: g * (
        0.5 * (1 + erf(x / math.sqrt(2))) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)))],
    "where": [Sample((mask(3, 4), real(3, 4), real(4)), reference=np.where), Sample((mask(3, 4), real(3, 4), 0.5), reference=np.where)],
    "addcmul": [Sample((real(3, 4), real(3, 4), real(4)), {"value": 0.5}, reference=lambda x, a, b, value: x + value * a * b)],
    "addcdiv": [Sample((real(3, 4), real(3, 4), positive(4)), {"value": 0.5}, reference=lambda x, a, b, value: x + value * a / b)],
    "lerp": [Sample((real(3, 4), real(3, 4), R.uniform(0, 1, (3, 4))), reference=lambda x, y, w: x + w * (y - x)),
             Sample((real(3, 4), real(3, 4), 0.3), reference=lambda x, y, w: x + w * (y - x))],
    "mse_backward": [Sample((real(3), real(3), real(3), 0.5), reference=lambda g, x, t, v: v * g * (x - t), torch=None)],
    "cast": [Sample((real(3, 4), ampc.float64), reference=lambda x, d: x, torch=None)],
    "to_device": [Sample((real(3, 4), 0), reference=lambda x, d: x, torch=None)],
    "clone": pointwise(np.copy, real(3, 4)),
    "in_rows": [Sample((real(3, 4),), reference=lambda x: x, torch=None)],
    "stands_for": [Sample((real(3, 4), real(3, 4)), reference=lambda value, x: value, torch=None, grad=False)],
    "full": [Sample(([2, 3], 1.5, ampc.float64), reference=lambda s, v, d: np.full(s, v), torch=None)],
    "arange": [Sample((0, 7, 2, ampc.int64), reference=lambda a, b, c, d: np.arange(a, b, c), torch=None)],
    "uniform": [Sample(([1000], 2.0, 3.0, ampc.float64), torch=None)],
    "normal": [Sample(([1000], 2.0, 3.0, ampc.float64), torch=None)],
    "randint": [Sample(([1000], 2, 5, ampc.int64), torch=None)],
    "randperm": [Sample((10,), torch=None)],
    "as_strided_scatter": _as_strided + [Sample((real(3, 4), real(3, 2), [3, 2], [1, 1], 0, True), torch=None)],
    "sum": [Sample((real(3, 4, 5),), reference=np.sum), Sample((real(3, 4, 5), [0, 2]), reference=lambda x, d: x.sum(tuple(d))),
            Sample((real(3, 4, 5), 1, True), reference=lambda x, d, k: x.sum(d, keepdims=k)), Sample((real(40, 300), 0), reference=np.sum)],
    "mean": [Sample((real(3, 4, 5),), reference=np.mean), Sample((real(3, 4, 5), [0, 1], True), reference=lambda x, d, k: x.mean(tuple(d), keepdims=k))],
    "prod": [Sample((real(3, 4),), reference=np.prod), Sample((real(3, 4), 1), reference=np.prod, torch="prod"),
             Sample((np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]]), 1), reference=np.prod)],
    "var": [Sample((real(3, 4, 5),), reference=lambda x: x.var(ddof=1)), Sample((real(3, 4, 5), [0, 2]), {"correction": 0, "keepdim": True},
            reference=lambda x, d, correction, keepdim: x.var(tuple(d), keepdims=keepdim))],
    "std": [Sample((real(3, 4, 5), 1), reference=lambda x, d: x.std(d, ddof=1)), Sample((real(3, 4),), {"correction": 0}, reference=lambda x, correction: x.std()),
            Sample((real(3, 4),), {"correction": 1.5}, reference=lambda x, correction: np.sqrt(((x - x.mean()) ** 2).sum() / 10.5))],
    "amax": [Sample((spread(3, 4, 5), [0, 2]), reference=lambda x, d: x.max(tuple(d))), Sample((spread(3, 40), 1), reference=lambda x, d: x.max(d))],
    "amin": [Sample((spread(3, 4, 5), [0, 2]), reference=lambda x, d: x.min(tuple(d)))],
    "max": [Sample((spread(3, 4),), reference=np.max)],
    "min": [Sample((spread(3, 4),), reference=np.min)],
    "max_dim": [Sample((spread(3, 4, 5), 1), reference=lambda x, d: (x.max(d), x.argmax(d)))],
    "min_dim": [Sample((spread(3, 4, 5), 1, True), reference=lambda x, d, k: (x.min(d, keepdims=k), x.argmin(d, keepdims=k)))],
    "masked_fill_tensor": [Sample((real(3, 4), mask(3, 4), real()), reference=lambda x, m, v: np.where(m, v, x), torch="masked_fill")],
    "max_other": [Sample((spread(3, 4), spread(3, 4) + 0.13), reference=np.maximum)],
    "min_other": [Sample((spread(3, 4), spread(3, 4) + 0.13), reference=np.minimum)],
    "argmax": [Sample((spread(3, 4),), reference=np.argmax), Sample((spread(3, 4), 1), reference=np.argmax)],
    "argmin": [Sample((spread(3, 4),), reference=np.argmin), Sample((spread(3, 4), 0), reference=np.argmin)],
    "any": [Sample((mask(3, 4),), reference=np.any), Sample((mask(3, 4), 1), reference=np.any)],
    "all": [Sample((mask(3, 4),), reference=np.all), Sample((mask(3, 4), 1), reference=np.all)],
    "norm": [Sample((real(3, 4),), torch="norm", reference=np.linalg.norm), Sample((real(3, 4), 1, 1), torch="norm", reference=lambda x, p, d: np.abs(x).sum(d)),
             Sample((real(3, 4), 3, 1, True), torch="norm", reference=lambda x, p, d, k: (np.abs(x)**3).sum(d, keepdims=k)**(1 / 3)),
             Sample((spread(3, 4), math.inf, 1), torch="norm", reference=lambda x, p, d: np.abs(x).max(d))],
    "logsumexp": [Sample((real(3, 4), 1), reference=logsumexp), Sample((real(3, 4, 2), [0, 2], True), reference=logsumexp)],
    "softmax": [Sample((real(3, 4), 1), reference=softmax), Sample((real(3, 4, 2), 1), reference=softmax)],
    "log_softmax": [Sample((real(3, 4), 1), reference=lambda x, d: np.log(softmax(x, d))), Sample((real(3, 4, 2), 0), reference=lambda x, d: np.log(softmax(x, d)))],
    "safe_softmax": [Sample((real(3, 4), 1), reference=softmax, torch="_safe_softmax"),
                     Sample((np.array([[-np.inf] * 3, [-np.inf, 0.5, 1.5]]), 1), reference=lambda x, d: np.array([[0.0] * 3, [0.0, *softmax(x[1, 1:], 0)]]), torch="_safe_softmax", grad=False)],
    "softmax_backward": [Sample((real(3, 4), real(3, 4), 1), reference=lambda g, y, d: y * (g - (g * y).sum(d, keepdims=True)), torch=None)],
    "log_softmax_backward": [Sample((real(3, 4), real(3, 4), 1), reference=lambda g, y, d: g - np.exp(y) * g.sum(d, keepdims=True), torch=None)],
    "mse_loss": [Sample((real(3, 4), real(3, 4)), reference=lambda x, t: ((x - t)**2).mean(), torch=F("mse_loss")),
                 Sample((real(3, 4), real(3, 4)), {"reduction": "sum"}, reference=lambda x, t, reduction: ((x - t)**2).sum(), torch=F("mse_loss")),
                 Sample((real(3, 4), real(3, 4)), {"reduction": "none"}, reference=lambda x, t, reduction: (x - t)**2, torch=F("mse_loss"))],
    "nll_loss": [Sample((real(5, 3), ints(3, 5)), reference=nll, torch=F("nll_loss")),
                 Sample((real(5, 3), np.array([0, 2, -100, 1, 1]), positive(3)), reference=nll, torch=F("nll_loss"), frozen=(2,)),
                 Sample((real(5, 3), ints(3, 5)), {"reduction": "none"}, reference=nll, torch=F("nll_loss")),
                 Sample((real(2, 3, 4), ints(3, 2, 4)), {"reduction": "sum"}, torch=F("nll_loss"))],
    "nll_loss_backward": [Sample((real(), ints(3, 5), None, [5, 3], -100, "mean"), torch=None)],
    "class_entropy": [Sample((real(5, 3), np.array([0, 2, -100, 1, 1]), positive(3), -100, reduction, 0.1), torch=None, frozen=(2,)) for reduction in ("none", "mean", "sum")] +
                     [Sample((real(2, 3, 4), ints(3, 2, 4), None, 1, "mean", 0.0), torch=None), Sample((real(3), np.array(2), None, -100, "mean", 0.0), torch=None)],
    "class_entropy_backward": [Sample((real(), ints(3, 5), None, real(5, 3), exact(np.arange(10.0).reshape(5, 2)), exact([5.0, 3.0]), -100, "mean", 0.0), torch=None)],
    "soft_entropy": [Sample((real(2, 3, 4), softmax(real(2, 3, 4), 1), positive(3), reduction, 0.1), torch=None) for reduction in ("none", "mean", "sum")] +
                    [Sample((real(3), softmax(real(3), 0), None, "mean", 0.0), torch=None)],
    "soft_entropy_backward": [Sample((real(), softmax(real(5, 3), 1), None, real(5, 3), exact(np.arange(15.0).reshape(5, 3)), "mean", 0.0), torch=None)],
    "l1_loss": [Sample((real(3, 4), real(3, 4)), reference=lambda x, t: np.abs(x - t).mean(), torch=F("l1_loss"))],
    "cross_entropy": [Sample((real(5, 3), ints(3, 5)), reference=lambda x, t: nll(np.log(softmax(x, 1)), t), torch=F("cross_entropy")),
                      Sample((real(5, 3), np.array([0, 2, -100, 1, 1]), positive(3)), {"label_smoothing": 0.1}, torch=F("cross_entropy"),
                             frozen=(2,)),
                      Sample((real(5, 3), softmax(real(5, 3), 1)), {"label_smoothing": 0.1, "reduction": "sum"}, torch=F("cross_entropy")),
                      Sample((real(2, 3, 4), ints(3, 2, 4)), torch=F("cross_entropy"))],
    "bce_with_logits": [Sample((real(3, 4), R.uniform(0, 1, (3, 4))), torch=F("binary_cross_entropy_with_logits"),
                               reference=lambda x, t: (np.log1p(np.exp(x)) - t * x).mean()),
                        Sample((real(3, 4), R.uniform(0, 1, (3, 4)), positive(4)), {"pos_weight": positive(4), "reduction": "sum"},
                               torch=F("binary_cross_entropy_with_logits"), frozen=(2, "pos_weight"))],
    "bce": [Sample((R.uniform(0.1, 0.9, (3, 4)), R.uniform(0, 1, (3, 4))), torch=F("binary_cross_entropy"),
                   reference=lambda p, t: -(t * np.log(p) + (1 - t) * np.log(1 - p)).mean())],
    "mm": pointwise(np.matmul, real(3, 4), real(4, 5)),
    "bmm": pointwise(np.matmul, real(2, 3, 4), real(2, 4, 5)),
    "linear": [Sample((real(3, 4), real(5, 4), real(5)), reference=lambda x, w, b: x @ w.T + b, torch=F("linear")),
               Sample((real(2, 3, 4), real(5, 4)), reference=lambda x, w: x @ w.T, torch=F("linear")),
               Sample((real(4), real(5, 4), real(5)), reference=lambda x, w, b: x @ w.T + b, torch=F("linear"))],
    "matmul": [Sample((real(*a), real(*b)), reference=np.matmul) for a, b in
               [((3, 4), (4, 5)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((2, 3, 4), (4,))]],
    "mv": pointwise(np.matmul, real(3, 4), real(4)),
    "dot": pointwise(np.dot, real(4), real(4)),
    "addmm": [Sample((real(5), real(3, 4), real(4, 5)), {"beta": 0.5, "alpha": 2}, reference=lambda x, a, b, beta, alpha: beta * x + alpha * a @ b)],
    "cat": [Sample(([real(2, 3), real(4, 3)], 0), reference=np.concatenate), Sample(([real(2, 3), real(2, 1)], -1), reference=np.concatenate)],
    "stack": [Sample(([real(2, 3), real(2, 3)], 1), reference=np.stack)],
    "gather": [Sample((real(3, 4), 1, ints(4, 3, 2)), reference=lambda x, d, i: np.take_along_axis(x, i, d))],
    "scatter_add": [Sample((real(3, 4), 1, ints(4, 3, 5), real(3, 5)), reference=scatter_add),
                    Sample((real(3, 4), 0, ints(3, 2, 3), real(3, 4)), reference=scatter_add, torch_grad=False)],
    "index_select": [Sample((real(3, 4), 1, ints(4, 6)), reference=lambda x, d, i: np.take(x, i, d))],
    "index_add": [Sample((real(3, 4), 1, ints(4, 6), real(3, 6)), half=False, reference=lambda x, d, i, s: scatter_add(x, d, np.broadcast_to(i, s.shape), s))],
    "index": [Sample((real(3, 4, 5), [ints(3, 6), ints(4, 6)]), reference=lambda x, i: x[tuple(i)], torch=lambda x, i: x[tuple(i)]),
              Sample((real(3, 4, 5), [None, ints(4, 2, 3)]), reference=lambda x, i: x[:, i[1]], torch=lambda x, i: x[:, i[1]]),
              Sample((real(3, 4, 5), [ints(3, 2), None, ints(5, 2)]), reference=lambda x, i: x[i[0], :, i[2]], torch=lambda x, i: x[i[0], :, i[2]])],
    "index_add_alpha": [Sample((real(3, 4), 1, ints(4, 6), real(3, 6)), {"alpha": 2}, half=False, torch="index_add",
                               reference=lambda x, d, i, s, alpha: scatter_add(x, d, np.broadcast_to(i, s.shape), alpha * s))],
    "masked_select": [Sample((real(3, 4), mask(3, 4)), reference=lambda x, m: x[m]), Sample((real(4), mask(3, 4)))],
    "index_put_masks": [Sample((real(3, 4), (np.array([[True, False, True, False], [False, False, False, True], [True, True, False, False]]),), real(5)),
                               torch=lambda x, i, v: x.index_put(i, v))],
    "index_put": [Sample((real(3, 4), (np.array([0, 2]), np.array([1, 1])), real(2), False), torch=lambda x, i, v, accumulate: x.index_put(i, v, accumulate)),
                  Sample((real(3, 4), (np.array([0, 2, 0]),), real(3, 4)), {"accumulate": True}, half=False, torch=lambda x, i, v, accumulate: x.index_put(i, v, accumulate))],
    "nonzero": [Sample((np.array([[1.0, 0.0], [0.0, 2.0]]),), reference=lambda x: np.argwhere(x), torch="nonzero")],
    "embedding": [Sample((real(5, 3), ints(5, 2, 4)), reference=lambda w, i: w[i], torch=lambda w, i: F("embedding")(i, w)),
                  Sample((real(5, 3), ints(5, 2, 4), 2), reference=lambda w, i, p: w[i], torch=lambda w, i, p: F("embedding")(i, w, p), grad=False)],
    "embedding_backward": [Sample((real(4, 3), ints(5, 4), 5, -1), torch=None, reference=lambda g, i, n, p: scatter_add(
        np.zeros((n, g.shape[1])), 0, np.broadcast_to(i[:, None], g.shape), g))],
    "topk": [Sample((spread(3, 6), 2), reference=lambda x, k: (-np.sort(-x, -1)[:, :k], np.argsort(-x, -1)[:, :k])),
             Sample((spread(6, 3), 2, 0, False), reference=lambda x, k, d, s: (np.sort(x, 0)[:k], np.argsort(x, 0)[:k]))],
    "sort": [Sample((spread(3, 6),), reference=lambda x: (np.sort(x, -1), np.argsort(x, -1))),
             Sample((spread(3, 6), 0, True), reference=lambda x, d, r: (-np.sort(-x, 0), np.argsort(-x, 0)))],
    "layer_norm": [Sample((real(3, 4, 5), [4, 5], real(4, 5), real(4, 5)), reference=layer_norm, torch=F("layer_norm")),
                   Sample((real(3, 6), [6]), reference=layer_norm, torch=F("layer_norm")),
                   Sample((real(3, 6), [6], real(6)), reference=layer_norm, torch=F("layer_norm"))],
    "layer_norm_backward": [Sample((real(3, 6), real(3, 6), real(3, 1), positive(3, 1), real(6), 3), torch=None)],
    "batch_norm": [Sample((real(4, 3), None, None, real(3), real(3), True), reference=batch_norm, torch=F("batch_norm")),
                   Sample((real(4, 3, 5), real(3), positive(3), real(3), real(3)), reference=batch_norm, torch=F("batch_norm"), frozen=(1, 2))],
    "group_norm": [Sample((real(2, 6, 5), 3, real(6), real(6)), reference=group_norm, torch=F("group_norm")),
                   Sample((real(3, 4, 2, 3), 2), reference=group_norm, torch=F("group_norm")),
                   Sample((real(3, 4), 1, real(4)), reference=group_norm, torch=F("group_norm"))],
    "instance_norm": [Sample((real(2, 3, 5), 3, real(3), real(3)), reference=group_norm, torch=None)],
    "group_norm_backward": [Sample((real(2, 6, 5), real(2, 6, 5), real(2, 3), positive(2, 3), real(6), 3), torch=None)],
    "batch_norm_backward": [Sample((real(4, 3), real(4, 3), real(3), positive(3), real(3), True), torch=None)],
    "dropout": [Sample((real(3, 4), 0.5, False), reference=lambda x, p, t: x, torch=F("dropout"))],
    "dropout_mask": [Sample((real(3, 4), 0.5, 3, 8), torch=None)],
    "alias": pointwise(lambda x: x, real(3, 4), torch=None),
    "piecewise": pointwise(lambda x: x, real(3, 4), torch=None),
    "addbmm": [Sample((real(2, 4), real(3, 2, 5), real(3, 5, 4)), {"beta": 0.5, "alpha": 2}, reference=lambda x, a, b, beta, alpha: beta * x + alpha * (a @ b).sum(0))],
    "baddbmm": [Sample((real(3, 2, 4), real(3, 2, 5), real(3, 5, 4)), {"beta": 0.5, "alpha": 2}, reference=lambda x, a, b, beta, alpha: beta * x + alpha * (a @ b))],
    "addmv": [Sample((real(2), real(2, 5), real(5)), reference=lambda x, a, b: x + a @ b)],
    "addr": [Sample((real(2, 5), real(2), real(5)), {"alpha": 2}, reference=lambda x, a, b, alpha: x + alpha * np.outer(a, b))],
    "outer": [Sample((real(3), real(4)), reference=np.outer)],
    "vdot": [Sample((real(5), real(5)), reference=np.vdot)],
    "inner": [Sample((real(2, 3, 4), real(5, 4)), reference=np.inner), Sample((real(3, 4), real(4)), reference=np.inner)],
    "vecdot": [Sample((real(3, 4), real(4)), reference=lambda x, y: (x * y).sum(-1), torch=lambda x, y: linalg("vecdot")(x, y)),
               Sample((real(2, 3, 4), real(2, 3, 4)), {"dim": 0}, reference=lambda x, y, dim: (x * y).sum(dim), torch=lambda x, y, dim: linalg("vecdot")(x, y, dim=dim))],
    "multi_dot": [Sample(([real(2, 5), real(5, 3), real(3, 4), real(4, 2)],), reference=lambda m: np.linalg.multi_dot(m), torch=lambda m: linalg("multi_dot")(m)),
                  Sample(([real(5), real(5, 3), real(3)],), reference=lambda m: np.linalg.multi_dot(m), torch=lambda m: linalg("multi_dot")(m))],
    "tensordot": [Sample((real(3, 4, 5), real(4, 3, 2), [1, 0], [0, 1]), reference=lambda x, y, a, b: np.tensordot(x, y, (a, b)),
                         torch=lambda x, y, a, b: __import__("torch").tensordot(x, y, (a, b)))],
    "bilinear": [Sample((real(2, 3), real(2, 4), real(5, 3, 4), real(5)), torch=F("bilinear"), reference=lambda x, y, w, b: np.einsum("ni,oij,nj->no", x, w, y) + b)],
    "cross": [Sample((real(4, 3), real(4, 3)), {"dim": 1}, reference=lambda x, y, dim: np.cross(x, y)), Sample((real(3, 2), real(3, 2)), torch=None)],
    "wide": [Sample((real(3),), reference=lambda x: x, torch=None)],
    "low": [Sample((real(3),), reference=lambda x: x, torch=None)],
    "attention": [Sample((real(2, 2, 4, 3), real(2, 2, 5, 3), real(2, 2, 5, 2)), torch=F("scaled_dot_product_attention"),
                         reference=lambda q, k, v: softmax(q @ k.swapaxes(-1, -2) / math.sqrt(3), -1) @ v),
                  Sample((real(1, 4, 3), real(1, 4, 3), real(1, 4, 3)), {"is_causal": True}, torch=F("scaled_dot_product_attention")),
                  Sample((real(1, 4, 3), real(1, 5, 3), real(1, 5, 3), mask(4, 5) | np.eye(4, 5, dtype=bool)), {"scale": 0.3}, torch=F("scaled_dot_product_attention")),
                  Sample((real(1, 2, 4, 3), real(1, 2, 5, 3), real(1, 2, 5, 3), mask(4, 5) | np.eye(4, 5, dtype=bool)), {"is_causal": True}, torch=F("scaled_dot_product_attention")),
                  Sample((real(2, 1, 4, 3), real(2, 1, 5, 3), real(2, 1, 5, 3), real(1, 5)), {"is_causal": True}, torch=F("scaled_dot_product_attention"), frozen=(3,)),
                  Sample((real(1, 4, 4, 3), real(1, 2, 5, 3), real(1, 2, 5, 3), real(4, 5)), {"enable_gqa": True}, torch=F("scaled_dot_product_attention"))],
    "fused_attention": [Sample((real(2, 4, 3), real(2, 5, 3), real(2, 5, 2), None, 0.6, False), torch=None,
                               reference=lambda q, k, v, m, s, c: softmax(q @ k.swapaxes(-1, -2) * s, -1) @ v),
                        Sample((real(2, 1, 4, 3), real(2, 1, 4, 3), real(2, 1, 4, 2), None, 0.6, True), torch=None),
                        Sample((real(1, 4, 3), real(1, 5, 3), real(1, 5, 2), mask(1, 4, 5) & (np.arange(4) != 2)[:, None], 0.6, False), torch=None),
                        Sample((real(140, 3), real(5, 3), real(5, 2), real(140, 5), 0.6, False), torch=None, grad=False, frozen=(3,),
                               reference=lambda q, k, v, m, s, c: softmax(q @ k.T * s + m, -1) @ v)],
    "fused_attention_backward": [Sample((real(2, 4, 2), real(2, 4, 3), real(2, 5, 3), real(2, 5, 2), None, 0.6, False), torch=None)],
    "flash_attention": [], "flash_attention_backward": [],  # on a GPU alone, in 16 bits: test_cuda_attention.py
    "lstm_cell": [Sample((real(2, 3), real(2, 4), real(2, 4), real(16, 3) * 0.5, real(16, 4) * 0.5, real(16), real(16)), reference=lstm_cell, torch=lstm_cell_of_torch)],
    "gru_cell": [Sample((real(2, 3), real(2, 4), real(12, 3) * 0.5, real(12, 4) * 0.5, real(12), real(12)), reference=gru_cell)],
    "rnn_tanh_cell": [Sample((real(2, 3), real(2, 4), real(4, 3), real(4, 4)), torch=None, reference=lambda x, h, w, u: np.tanh(x @ w.T + h @ u.T))],
    "rnn_relu_cell": [Sample((real(2, 3), real(2, 4), real(4, 3), real(4, 4), real(4), real(4)), reference=lambda x, h, w, u, b, c: np.maximum(x @ w.T + h @ u.T + b + c, 0))],
    "rnn_layer": [Sample((real(3, 2, 5), real(2, 2, 4), real(16, 5), real(16, 4), real(16), real(16), None, "lstm", False), reference=rnn_layer, torch=None),
                  Sample((real(6, 5), real(1, 3, 4), real(12, 5), real(12, 4), real(12), real(12), FALLING, "gru", True), reference=rnn_layer, torch=None),
                  Sample((real(3, 2, 5), real(1, 2, 4), real(4, 5), real(4, 4), None, None, None, "tanh", True), reference=rnn_layer, torch=None)],
    "recurrence_parts": [Sample((real(3, 2, 16), real(2, 2, 4), real(16, 4), None, None, "lstm", False), reference=recurrence, torch=None),
                         Sample((real(6, 16), real(2, 3, 4), real(16, 4), None, FALLING, "lstm", True), reference=recurrence, torch=None),
                         Sample((real(3, 2, 12), real(1, 2, 4), real(12, 4), real(12), None, "gru", True), reference=recurrence, torch=None),
                         Sample((real(6, 4), real(1, 3, 4), real(4, 4), None, FALLING, "relu", False), reference=recurrence, torch=None)],
    "recurrence": [Sample((real(3, 2, 16), real(2, 2, 4), real(16, 4), None, None, "lstm", False, True), reference=recurrence, torch=None),
                   Sample((real(6, 16), real(2, 3, 4), real(16, 4), None, ON_CPU, "lstm", True, True), reference=recurrence, torch=None),
                   Sample((real(6, 16), real(2, 3, 4), real(16, 4), None, ON_CPU, "lstm", False, False), reference=recurrence, torch=None, grad=False),
                   Sample((real(3, 2, 12), real(1, 2, 4), real(12, 4), real(12), None, "gru", True, True), reference=recurrence, torch=None),
                   Sample((real(6, 12), real(1, 3, 4), real(12, 4), real(12), ON_CPU, "gru", False, True), reference=recurrence, torch=None),
                   Sample((real(6, 4), real(1, 3, 4), real(4, 4), None, ON_CPU, "tanh", False, True), reference=recurrence, torch=None),
                   Sample((real(3, 20, 4), real(1, 20, 4), real(4, 4), None, None, "relu", False, True), reference=recurrence, torch=None)],
    "recurrence_backward": [Sample((real(3, 2, 4), real(2, 2, 4), real(3, 2, 4), real(3, 2, 20), real(2, 2, 4), real(16, 4), None, "lstm", False, False), torch=None)],
    "solve": [Sample((solid(3), real(3, 2)), reference=solved, torch=lambda a, b: tuple(linalg("solve_ex")(a, b)), half=False),
              Sample((solid(2, 4), real(2, 4, 1)), reference=solved, torch=lambda a, b: tuple(linalg("solve_ex")(a, b)), half=False),
              Sample((solid(2, 4), real(2, 4, 1), False), reference=solved, torch=lambda a, b, c: tuple(linalg("solve_ex")(a, b)), half=False)],
    "det": [Sample((solid(2, 3) * np.array([-1.0, 1.0])[:, None, None],), reference=np.linalg.det, torch=lambda a: linalg("det")(a), half=False)],
    "slogdet": [Sample((solid(2, 3) * np.array([-1.0, 1.0])[:, None, None],), reference=lambda a: tuple(np.linalg.slogdet(a)), torch=lambda a: tuple(linalg("slogdet")(a)), half=False)],
    "cholesky": [Sample((symmetric(2, 3),), reference=lambda a: (np.linalg.cholesky(a), np.zeros(2, np.int32)), torch=lambda a: tuple(linalg("cholesky_ex")(a)), half=False, frozen=(0,)),
                 Sample((symmetric(3),), half=False, torch=None, grad=False)],
    "qr": [Sample((real(4, 3),), torch=None, half=False), Sample((real(2, 3, 5),), torch=None, half=False)],
    "eigh": [Sample((symmetric(2, 3),), torch=None, half=False, frozen=(0,))],
    "svd": [Sample((real(4, 3),), torch=None, half=False), Sample((real(2, 2, 3),), torch=None, half=False)],
    "dist": [Sample((real(3, 4), real(3, 4)), reference=lambda x, y: np.linalg.norm(x - y)), Sample((real(3, 4), real(4), 1), reference=lambda x, y, p: np.abs(x - y).sum())],
    "cdist": [Sample((real(2, 3, 4), real(2, 5, 4)), reference=lambda x, y: np.sqrt(((x[:, :, None] - y[:, None]) ** 2).sum(-1)), half=False),
              Sample((real(3, 4), real(5, 4), 1), reference=lambda x, y, p: np.abs(x[:, None] - y[None]).sum(-1), half=False)],
    "pdist": [Sample((real(4, 3),), reference=lambda x: np.array([np.linalg.norm(x[i] - x[j]) for i in range(4) for j in range(i + 1, 4)]), half=False)],
    "pairwise_distance": [Sample((real(3, 4), real(3, 4), 2.0, 1e-6), half=False, reference=lambda x, y, p, e: np.sqrt(((x - y + e) ** 2).sum(-1))),
                          Sample((real(3, 4), real(3, 4), 1.0, 1e-6, True), half=False)],
    "renorm": [Sample((real(3, 4), 2, 0, 1.5), reference=lambda x, p, d, m: x * np.where(np.linalg.norm(x, axis=1, keepdims=True) > m, m / (np.linalg.norm(x, axis=1, keepdims=True) + 1e-7), 1), grad=True, half=True)],
    "cosine_similarity": [Sample((real(3, 4), real(3, 4)), half=True, reference=lambda x, y: (x * y).sum(1) / np.sqrt((x * x).sum(1) * (y * y).sum(1)))],
    "normalize": [Sample((real(3, 4),), reference=lambda x: x / np.linalg.norm(x, axis=1, keepdims=True), torch=F("normalize")),
                  Sample((real(3, 4), 1.0, 0), reference=lambda x, p, d: x / np.abs(x).sum(d, keepdims=True), torch=F("normalize"))],
    "smooth_l1_loss": [Sample((real(3, 4), real(3, 4)), {"beta": 0.7}, torch=F("smooth_l1_loss"),
                              reference=lambda x, t, beta: np.where(abs(x - t) < beta, (x - t)**2 / 2 / beta, abs(x - t) - beta / 2).mean())],
    "huber_loss": [Sample((real(3, 4), real(3, 4)), {"delta": 0.7, "reduction": "none"}, torch=F("huber_loss"),
                          reference=lambda x, t, delta, reduction: np.where(abs(x - t) < delta, (x - t)**2 / 2, delta * (abs(x - t) - delta / 2)))],
    "kl_div": [Sample((real(3, 4), positive(3, 4)), {"reduction": r}, torch=F("kl_div"), reference=lambda x, t, reduction: {
        "none": lambda e: e, "mean": np.mean, "sum": np.sum, "batchmean": lambda e: e.sum() / 3}[reduction](t * (np.log(t) - x))) for r in ("none", "mean", "sum", "batchmean")]
    + [Sample((real(3, 4), real(3, 4)), {"log_target": True}, torch=F("kl_div"), reference=lambda x, t, log_target: (np.exp(t) * (t - x)).mean())],
    "poisson_nll_loss": [Sample((real(3, 4), positive(3, 4)), torch=F("poisson_nll_loss"), reference=lambda x, t: (np.exp(x) - t * x).mean()),
                         Sample((positive(3, 4), positive(3, 4) * 2), {"log_input": False, "full": True}, torch=F("poisson_nll_loss"), frozen=(1,))],
    "gaussian_nll_loss": [Sample((real(3, 4), real(3, 4), positive(3, 4)), torch=F("gaussian_nll_loss"), reference=lambda x, t, v: ((np.log(v) + (x - t)**2 / v) / 2).mean()),
                          Sample((real(3, 4), real(3, 4), positive(3, 1)), {"full": True}, torch=F("gaussian_nll_loss"))],
    "soft_margin_loss": [Sample((real(3, 4), np.sign(real(3, 4))), torch=F("soft_margin_loss"), reference=lambda x, t: np.log1p(np.exp(-t * x)).mean(), frozen=(1,))],
    "hinge_embedding_loss": [Sample((real(3, 4), np.sign(real(3, 4)), 0.7), torch=F("hinge_embedding_loss"), frozen=(1,),
                                    reference=lambda x, t, m: np.where(t > 0, x, np.maximum(0, m - x)).mean())],
    "margin_ranking_loss": [Sample((real(4), real(4), np.sign(real(4)), 0.3), torch=F("margin_ranking_loss"), frozen=(2,),
                                   reference=lambda x, y, t, m: np.maximum(0, -t * (x - y) + m).mean())],
    "ctc_loss": [Sample((np.log(softmax(real(6, 2, 4), 2)), np.array([[0, 1, 0, 1, 0], [0, 3, 0, 2, 0]]), np.array([6, 4]), np.array([2, 1])), reference=ctc, torch=None),
                  Sample((np.log(softmax(real(3, 1, 4), 2)), np.array([[0, 1, 0, 2, 0]]), np.array([3]), np.array([2])), reference=ctc, torch=None)],
    "cosine_embedding_loss": [Sample((real(4, 3), real(4, 3), np.array([1.0, -1.0, 1.0, -1.0]), 0.1), torch=F("cosine_embedding_loss"), frozen=(2,), half=False)],
    "triplet_margin_loss": [Sample((real(4, 3), real(4, 3), real(4, 3)), torch=F("triplet_margin_loss"), half=False),
                            Sample((real(4, 3), real(4, 3), real(4, 3)), {"swap": True, "reduction": "sum"}, torch=F("triplet_margin_loss"), half=False)],
    "multi_margin_loss": [Sample((real(4, 5), ints(5, 4)), half=False, torch=F("multi_margin_loss"), reference=lambda x, t: np.mean(
        [sum(max(0, 1 - r[k] + v) for j, v in enumerate(r) if j != k) / 5 for r, k in zip(x, t)])),
        Sample((real(4, 5), ints(5, 4), 2, 0.7, positive(5)), half=False, torch=F("multi_margin_loss"), frozen=(4,))],
    "multilabel_margin_loss": [Sample((real(2, 4), np.array([[3, 0, -1, 1], [1, -1, 2, 0]])), half=False, torch=F("multilabel_margin_loss")),
                               Sample((real(4), np.array([2, 0, -1, 1])), half=False, torch=F("multilabel_margin_loss"))],
    "multilabel_soft_margin_loss": [Sample((real(3, 4), mask(3, 4).astype(float), positive(4)), torch=F("multilabel_soft_margin_loss"), frozen=(1, 2))],
    "cumsum": [Sample((real(3, 4, 5), 1), reference=np.cumsum), Sample((real(2, 3000), -1), reference=np.cumsum, half=False, grad=False)],
    "cumprod": [Sample((real(3, 4), 1), reference=np.cumprod), Sample((np.array([[1.5, 0.0, 2.0, 3.0], [0.0, 0.0, 3.0, 1.0]]), 1), reference=np.cumprod)],
    "logcumsumexp": [Sample((real(3, 4), 1), reference=np.logaddexp.accumulate), Sample((real(70, 2), 0), reference=np.logaddexp.accumulate, grad=False)],
    "linear_scan": [Sample((real(3, 4), real(3, 4), 1), torch=None, reference=linear_scan), Sample((real(3, 4), real(3, 4), 0, True), torch=None, reference=linear_scan),
                    Sample((real(2, 300), R.uniform(0.1, 0.9, (2, 300)), 1), torch=None, reference=linear_scan, grad=False)],
    "cummax": [Sample((spread(3, 4, 5), 1), reference=lambda x, d: (np.maximum.accumulate(x, d), last_index(x, d, np.greater_equal))),
               Sample((ints(3, 2, 200), 1), reference=lambda x, d: (np.maximum.accumulate(x, d), last_index(x, d, np.greater_equal)))],
    "cummin": [Sample((spread(3, 4), 0), reference=lambda x, d: (np.minimum.accumulate(x, d), last_index(x, d, np.less_equal)))],
    "convolution": [Sample((real(2, 3, 7), real(4, 3, 3), real(4), [2], [1], [1], False, [0], 1), reference=convolve),
                    Sample((real(2, 4, 6, 5), real(6, 2, 3, 2), real(6), [1, 2], [1, 0], [2, 1], False, [0], 2), reference=convolve),
                    Sample((real(1, 2, 4, 4, 5), real(3, 2, 2, 3, 2), None, [1], [0, 1, 1], [1], False, [0], 1), reference=convolve),
                    Sample((real(2, 4, 5, 4), real(4, 3, 3, 2), real(6), [2, 1], [1, 0], [1, 2], True, [1, 0], 2)),
                    Sample((real(2, 3, 5), real(3, 2, 4), None, [3], [1], [1], True, [2], 1))],
    "convolution_weight": [Sample((real(2, 4, 6, 5), real(2, 6, 4, 2), [3, 2], [1, 2], [1, 0], [2, 1], 2), torch=None)],
    "im2col": [Sample((real(2, 3, 5, 4), [2, 3], [1, 1], [1, 0], [2, 1]), reference=columns, torch=F("unfold"))],
    "col2im": [Sample((real(2, 12, 12), [5, 4], [2, 2], [1, 1], [0, 0], [1, 1]), torch=F("fold")),
               Sample((real(2, 18, 6), [5, 4], [2, 3], [1, 1], [1, 0], [2, 1]), torch=F("fold"))],
    "max_pool_backward": [Sample((real(2, 3), np.array([[0, 2, 5], [2, 2, 5]]), [2, 7], [3], [2], [0], [1], False), torch=None,
                                 reference=lambda g, i, *_: scatter_add(np.zeros((2, 7)), 1, i, g))],
    "max_pool": [Sample((spread(2, 2, 6, 7), [3, 2], [2], [1], [1], True), torch=lambda x, k, s, p, d, c: F("max_pool2d")(x, k, s, p, d, c, return_indices=True)),
                 Sample((spread(2, 9), [2], [3], [0], [2], False), torch=lambda x, k, s, p, d, c: F("max_pool1d")(x[None], k, s, p, d, c, return_indices=True)[0][0], grad=True),
                 Sample((spread(2, 5, 7), [3, 4], [1], [0], [1], False, True), torch=lambda x, k, s, p, d, c, a: F("adaptive_max_pool2d")(x, k, return_indices=True))],
    "avg_pool": [Sample((real(2, 6, 7), [3, 2], [2], [1], True, False, True, 0.0), torch=lambda x, k, s, p, ceil, adaptive, counts, divisor: F("avg_pool2d")(x, k, s, p, ceil, counts)),
                 Sample((real(2, 6, 7), [3, 2], [1, 2], [1, 0], True, False, False, 5.0), torch=lambda x, k, s, p, ceil, adaptive, counts, divisor: F("avg_pool2d")(x, k, s, p, ceil, counts, int(divisor))),
                 Sample((real(2, 5, 7), [3, 4], [1], [0], False, True, False, 0.0), torch=lambda x, k, *_: F("adaptive_avg_pool2d")(x, k))],
    "avg_pool_backward": [Sample((real(2, 3), [2, 7], [3], [2], [0], False, False, True, 0.0), torch=None,
                                 reference=lambda g, *_: np.stack([g[:, max(0, (i - 1) // 2):i // 2 + 1].sum(1) / 3 for i in range(7)], 1))],
    "resample": [Sample((real(2, 5, 3), np.array([[0, 1], [4, -1], [2, 2]]), exact([[0.25, 0.75], [1.0, 9.0], [0.5, 0.5]]),
                         np.array([[0], [0], [2], [-1], [1]]), exact([[0.25], [0.75], [1.0], [0.0], [1.0]]), 1), torch=None,
                        reference=lambda x, i, w, j, v, d: np.stack([0.25 * x[:, 0] + 0.75 * x[:, 1], x[:, 4], x[:, 2]], 1))],
    "flip": [Sample((real(3, 4, 8), [0, -1]), reference=lambda x, d: np.flip(x, d)), Sample((real(3, 16), [1]), reference=lambda x, d: np.flip(x, d))],
    "view": [Sample((real(3, 4), [2, 6]), reference=np.reshape, torch=lambda x, s: x.view(s))],
    "expand": [Sample((real(3, 1), [2, 3, 4]), reference=np.broadcast_to, torch=lambda x, s: x.expand(s))],
    "permute": [Sample((real(2, 3, 4), [2, 0, 1]), reference=np.transpose)],
    "transpose": [Sample((real(2, 3, 4), 0, -1), reference=np.swapaxes)],
    "unsqueeze": [Sample((real(2, 3), 1), reference=np.expand_dims)],
    "squeeze": [Sample((real(2, 1, 3, 1),), reference=np.squeeze), Sample((real(2, 1, 3, 1), 1), reference=np.squeeze)],
    "unfold": [Sample((real(3, 5), 1, 3, 2), reference=lambda x, d, n, step: np.stack([x[:, 0:3], x[:, 2:5]], 1),
                      torch=lambda x, d, n, step: x.unfold(d, n, step)),
               Sample((real(4), 0, 2, 1), reference=lambda x, d, n, step: np.stack([x[i:i + 2] for i in range(3)]), torch=lambda x, d, n, step: x.unfold(d, n, step))],
    "select": [Sample((real(3, 4, 5), 1, -2), reference=lambda x, d, i: np.take(x, i, d))],
    "diagonal": [Sample((real(3, 4),), reference=np.diagonal), Sample((real(3, 4, 5), -1, 2, 0), reference=np.diagonal), Sample((real(2, 3), 5), reference=np.diagonal)],
    "slice": [Sample((real(3, 7), 1, 1, 6, 2), reference=lambda x, d, a, b, s: x[:, a:b:s], torch=None),
              Sample((real(3, 7), 1, -3), reference=lambda x, d, a: x[:, a:], torch=None)],
    "as_strided": [Sample((real(3, 4), [2, 3], [4, 1], 1), reference=lambda x, s, t, o: np.lib.stride_tricks.as_strided(x.reshape(-1)[o:], s, [8 * i for i in t])),
                   Sample((real(12), [3, 2], [1, 1], 2))],
    "reshape": [Sample((real(3, 4), [2, -1]), reference=np.reshape)],
    "flatten": [Sample((real(2, 3, 4), 1), reference=lambda x, a: x.reshape(2, 12))],
    "contiguous": pointwise(lambda x: x, real(3, 4), torch=lambda x: x.contiguous()),
    "t": pointwise(np.transpose, real(3, 4)),
    "narrow": [Sample((real(3, 7), 1, 2, 3), reference=lambda x, d, a, n: x[:, a:a + n])],
}
SAMPLES |= COMPOSED | NN | LINALG


def convert(value: Any, tensor: Callable[[np.ndarray], Any]) -> Any:
    if isinstance(value, np.ndarray):
        return tensor(value)
    if isinstance(value, ampc.Tensor):  # see `exact`
        return value.to(ampc.get_default_device())
    if isinstance(value, (list, tuple)):
        return type(value)(convert(v, tensor) for v in value)
    if isinstance(value, dict):
        return {k: convert(v, tensor) for k, v in value.items()}
    return value


def _build(sample: Sample, one: Callable[[np.ndarray, bool], Any], grad: bool) -> tuple:
    args = tuple(convert(v, lambda a, k=k: one(a, grad and k not in sample.frozen)) for k, v in enumerate(sample.args))
    kwargs = {k: convert(v, lambda a, k=k: one(a, grad and k not in sample.frozen)) for k, v in sample.kwargs.items()}
    return args, kwargs


def to_ampc(sample: Sample, dtype: Any, grad: bool = False) -> tuple:
    """(args, kwargs) with arrays as tensors; floating ones in ``dtype``, requiring gradients when ``grad``."""
    def one(a: np.ndarray, leaf: bool) -> Any:
        t = ampc.tensor(a, device="cpu" if a is ON_CPU else None)
        if t.is_floating_point():
            t = t.to(dtype)
            t = t.requires_grad_() if leaf else t
        return t
    return _build(sample, one, grad)


def to_torch(sample: Sample, dtype: Any, grad: bool = False) -> tuple:
    """The same for torch."""
    import torch

    def one(a: np.ndarray, leaf: bool) -> Any:
        t = torch.tensor(a)
        if t.is_floating_point():
            t = t.to(dtype)
            t = t.requires_grad_() if leaf else t
        return t
    return _build(sample, one, grad)


OPERATORS = {row["name"]: row for row in ampc._C.op_table()}


def function(name: str) -> Callable[..., Any]:
    return ampc._C._functions[OPERATORS[name]["python"]]


def torch_function(name: str, sample: Sample) -> Optional[Callable[..., Any]]:
    import torch

    if sample.torch is None:
        return None
    return sample.torch if callable(sample.torch) else getattr(torch, sample.torch or OPERATORS[name]["python"])


CPU_ONLY = {"fused_attention", "fused_attention_backward"}  # their parts do their work on a GPU
WIDE_ONLY = {"solve", "slogdet", "slogdet_square", "det", "logdet", "matrix_power", "cholesky", "cholesky_inverse", "cholesky_solve", "triangular_solve", "qr",
             "eigh", "svd", "quantile", "nanquantile", *LINALG}  # float32 and float64
CASES = [(name, i) for name in SAMPLES for i in range(len(SAMPLES[name]))]
IDS = [f"{name}-{i}" for name, i in CASES]


def outputs(result: Any) -> list:
    return list(result) if isinstance(result, tuple) else [result]
