"""Special functions under torch.special's names."""

from typing import TYPE_CHECKING

from . import _ops
from ._messages import checks as _checks
from ._names.missing import absent_from
from ._ops import digamma, erf, erfc, erfinv, exp2, expm1, i0, lgamma, log1p, logit, logsumexp, polygamma, round, sinc, xlogy
from ._ops import igamma as gammainc
from ._ops import igammac as gammaincc
from ._ops import mvlgamma as multigammaln
from ._ops import sigmoid as expit
from .nn.functional import log_softmax, softmax

__all__ = ["airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t", "chebyshev_polynomial_u",
           "chebyshev_polynomial_v", "chebyshev_polynomial_w", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit",
           "expm1", "gammainc", "gammaincc", "gammaln", "hermite_polynomial_h", "hermite_polynomial_he", "i0", "i0e", "i1", "i1e",
           "laguerre_polynomial_l", "legendre_polynomial_p", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp",
           "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "multigammaln", "ndtr", "ndtri",
           "polygamma", "psi", "round", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "shifted_chebyshev_polynomial_t",
           "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w", "sinc", "softmax",
           "spherical_bessel_j0", "xlog1py", "xlogy", "zeta"]


gammaln, psi = lgamma, digamma
i1, i0e, i1e = _ops.i1, _ops.i0e, _ops.i1e
bessel_j0, bessel_j1, bessel_y0, bessel_y1 = _ops.bessel_j0, _ops.bessel_j1, _ops.bessel_y0, _ops.bessel_y1
modified_bessel_i0, modified_bessel_i1 = i0, i1
modified_bessel_k0, modified_bessel_k1 = _ops.modified_bessel_k0, _ops.modified_bessel_k1
scaled_modified_bessel_k0, scaled_modified_bessel_k1 = _ops.scaled_modified_bessel_k0, _ops.scaled_modified_bessel_k1
spherical_bessel_j0 = _ops.spherical_bessel_j0
erfcx, ndtr, log_ndtr, ndtri = _ops.erfcx, _ops.ndtr, _ops.log_ndtr, _ops.ndtri
entr, xlog1py, zeta = _ops.entr, _ops.xlog1py, _ops.zeta
airy_ai = _ops.airy_ai
chebyshev_polynomial_t, chebyshev_polynomial_u = _ops.chebyshev_polynomial_t, _ops.chebyshev_polynomial_u
chebyshev_polynomial_v, chebyshev_polynomial_w = _ops.chebyshev_polynomial_v, _ops.chebyshev_polynomial_w
shifted_chebyshev_polynomial_t, shifted_chebyshev_polynomial_u = _ops.shifted_chebyshev_polynomial_t, _ops.shifted_chebyshev_polynomial_u
shifted_chebyshev_polynomial_v, shifted_chebyshev_polynomial_w = _ops.shifted_chebyshev_polynomial_v, _ops.shifted_chebyshev_polynomial_w
hermite_polynomial_h, hermite_polynomial_he = _ops.hermite_polynomial_h, _ops.hermite_polynomial_he
laguerre_polynomial_l, legendre_polynomial_p = _ops.laguerre_polynomial_l, _ops.legendre_polynomial_p

_checks.install(globals())

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
