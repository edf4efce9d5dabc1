"""Special functions under torch.special's names."""

from typing import TYPE_CHECKING

from . import _checks, _ops
from ._missing import absent_from
from ._ops import digamma, erf, erfc, erfinv, exp2, expm1, i0, lgamma, log1p, logit, logsumexp, polygamma, round, sinc, xlogy
from ._ops import igamma as gammainc
from ._ops import igammac as gammaincc
from ._ops import mvlgamma as multigammaln
from ._ops import sigmoid as expit
from .nn.functional import log_softmax, softmax

__all__ = ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1",
           "gammainc", "gammaincc", "gammaln", "i0", "i0e", "i1", "i1e", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp",
           "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "multigammaln", "ndtr", "ndtri", "polygamma",
           "psi", "round", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "sinc", "softmax", "spherical_bessel_j0", "xlog1py",
           "xlogy", "zeta"]


gammaln, psi = lgamma, digamma
i1, i0e, i1e = _ops.i1, _ops.i0e, _ops.i1e
bessel_j0, bessel_j1, bessel_y0, bessel_y1 = _ops.bessel_j0, _ops.bessel_j1, _ops.bessel_y0, _ops.bessel_y1
modified_bessel_i0, modified_bessel_i1 = i0, i1
modified_bessel_k0, modified_bessel_k1 = _ops.modified_bessel_k0, _ops.modified_bessel_k1
scaled_modified_bessel_k0, scaled_modified_bessel_k1 = _ops.scaled_modified_bessel_k0, _ops.scaled_modified_bessel_k1
spherical_bessel_j0 = _ops.spherical_bessel_j0
erfcx, ndtr, log_ndtr, ndtri = _ops.erfcx, _ops.ndtr, _ops.log_ndtr, _ops.ndtri
entr, xlog1py, zeta = _ops.entr, _ops.xlog1py, _ops.zeta

_checks.install(globals())

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
