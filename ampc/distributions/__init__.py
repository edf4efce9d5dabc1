"""Probability distributions, transforms of them, and the divergence of one from another. Names and meaning: torch.distributions.

Families that are alike are in one file: location_scale.py, gamma_family.py, chances.py, classes.py, derived.py, gaussian.py, correlations.py.
torch's file names are names of these modules, too, so that ``ampc.distributions.normal.Normal`` is there."""

import sys as _sys
from typing import TYPE_CHECKING

from .._names.missing import absent_from
from . import chances, classes, composed, correlations, derived, distribution, gamma_family, gaussian, location_scale, transforms
from .chances import Bernoulli, Binomial, ContinuousBernoulli, Geometric, NegativeBinomial, Poisson
from .classes import Categorical, Multinomial, OneHotCategorical, OneHotCategoricalStraightThrough
from .composed import Independent, MixtureSameFamily, TransformedDistribution
from .constraint_registry import biject_to, transform_to
from .correlations import LKJCholesky, VonMises
from .derived import (
    GeneralizedPareto,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Kumaraswamy,
    LogisticNormal,
    LogNormal,
    Pareto,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
    Weibull,
)
from .distribution import Distribution, ExponentialFamily
from .gamma_family import Beta, Chi2, Dirichlet, Exponential, FisherSnedecor, Gamma
from .gaussian import LowRankMultivariateNormal, MultivariateNormal, Wishart
from .kl import kl_divergence, register_kl
from .location_scale import Cauchy, Gumbel, Laplace, Normal, StudentT, Uniform
from .transforms import *  # noqa: F403

__all__ = ["Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "ContinuousBernoulli", "Dirichlet", "Distribution", "Exponential",
           "ExponentialFamily", "FisherSnedecor", "Gamma", "GeneralizedPareto", "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent",
           "InverseGamma", "Kumaraswamy", "LKJCholesky", "Laplace", "LogNormal", "LogisticNormal", "LowRankMultivariateNormal",
           "MixtureSameFamily", "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical",
           "OneHotCategoricalStraightThrough", "Pareto", "Poisson", "RelaxedBernoulli", "RelaxedOneHotCategorical", "StudentT",
           "TransformedDistribution", "Uniform", "VonMises", "Weibull", "Wishart", "biject_to", "kl_divergence", "register_kl", "transform_to"]
__all__ += transforms.__all__

for _home, _names in {
    chances: "bernoulli binomial continuous_bernoulli geometric negative_binomial poisson", classes: "categorical multinomial one_hot_categorical",
    composed: "independent mixture_same_family transformed_distribution", correlations: "lkj_cholesky von_mises",
    derived: "generalized_pareto half_cauchy half_normal inverse_gamma kumaraswamy log_normal logistic_normal pareto relaxed_bernoulli "
             "relaxed_categorical weibull", distribution: "exp_family", gamma_family: "beta chi2 dirichlet exponential fishersnedecor gamma",
    gaussian: "lowrank_multivariate_normal multivariate_normal wishart", location_scale: "cauchy gumbel laplace normal studentT uniform",
}.items():
    for _name in _names.split():
        _sys.modules[f"{__name__}.{_name}"] = globals()[_name] = _home


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
