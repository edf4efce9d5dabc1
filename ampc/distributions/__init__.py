"""Probability distributions: Normal, Categorical, Bernoulli, and the divergence of one from another. Names and meaning:
torch.distributions."""

from .bernoulli import Bernoulli
from .categorical import Categorical
from .distribution import Distribution
from .kl import kl_divergence, register_kl
from .normal import Normal

__all__ = ["Bernoulli", "Categorical", "Distribution", "Normal", "kl_divergence", "register_kl"]
