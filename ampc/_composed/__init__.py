"""Functions of tensors put together from the table's operators, by topic. Each module lists what ampc shows as functions
(``__all__``) and, of these, what Tensor shows as methods (``METHODS``)."""

from .._C import Tensor
from . import arrange, elementwise, more, order, products, random, reduce, scatter

MODULES = (arrange, elementwise, more, order, products, random, reduce, scatter)


for _module in MODULES:
    for _name in _module.METHODS:
        if not hasattr(Tensor, _name):
            setattr(Tensor, _name, getattr(_module, _name))
more.install()
