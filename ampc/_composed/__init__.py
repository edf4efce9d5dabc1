"""Functions of tensors written with the table's operators, by topic. Each module lists the functions that ampc exports (``__all__``),
and which of them are also methods of Tensor (``METHODS``)."""

from .._C import Tensor
from . import copies, creation, in_place, products, properties, random, reduce, shape_ops, sort_search

MODULES = (shape_ops, copies, properties, creation, in_place, sort_search, products, random, reduce)


for _module in MODULES:
    for _name in _module.METHODS:
        if not hasattr(Tensor, _name):
            setattr(Tensor, _name, getattr(_module, _name))
