"""Probability distributions: Normal, Categorical, Bernoulli, and the divergence of one from another. Names and meaning:
torch.distributions."""

from .distribution import Distribution
from .families import Bernoulli, Categorical, Normal
from .kl import kl_divergence, register_kl

__all__ = ["Bernoulli", "Categorical", "Distribution", "Normal", "kl_divergence", "register_kl"]
