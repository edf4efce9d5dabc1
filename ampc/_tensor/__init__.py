"""Tensors: how they are made, look, and share memory, and what the core's type has beside the operators of the table."""

from .._C import Tensor as Tensor
