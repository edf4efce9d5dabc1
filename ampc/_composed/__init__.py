"""Functions of tensors put together from the table's operators, by topic. Each module lists what ampc shows as functions
(``__all__``) and, of these, what Tensor shows as methods (``METHODS``)."""

from .._C import Tensor
from . import creation, elementwise, in_place, products, properties, random, reduce, scatter, shape_ops, sort_search

MODULES = (shape_ops, elementwise, properties, creation, in_place, sort_search, products, random, reduce, scatter)


for _module in MODULES:
    for _name in _module.METHODS:
        if not hasattr(Tensor, _name):
            setattr(Tensor, _name, getattr(_module, _name))
in_place.install()
