"""Special functions under torch.special's names."""

from . import _C, _checks
from ._composed.elementwise import sinc
from ._ops import digamma, erf, erfc, erfinv, exp2, expm1, i0, lgamma, log1p, logit, logsumexp, polygamma, round, xlogy
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

_f = _C._functions

gammaln, psi = lgamma, digamma
i1, i0e, i1e = _f["i1"], _f["i0e"], _f["i1e"]
bessel_j0, bessel_j1, bessel_y0, bessel_y1 = _f["bessel_j0"], _f["bessel_j1"], _f["bessel_y0"], _f["bessel_y1"]
modified_bessel_i0, modified_bessel_i1 = i0, i1
modified_bessel_k0, modified_bessel_k1 = _f["modified_bessel_k0"], _f["modified_bessel_k1"]
scaled_modified_bessel_k0, scaled_modified_bessel_k1 = _f["scaled_modified_bessel_k0"], _f["scaled_modified_bessel_k1"]
spherical_bessel_j0 = _f["spherical_bessel_j0"]
erfcx, ndtr, log_ndtr, ndtri = _f["erfcx"], _f["ndtr"], _f["log_ndtr"], _f["ndtri"]
entr, xlog1py, zeta = _f["entr"], _f["xlog1py"], _f["zeta"]

_checks.install(globals())
