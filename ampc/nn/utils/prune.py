"""Pruning: masks of zeros over parameters, under torch.nn.utils.prune's names.

A pruned parameter ``weight`` is kept as the parameter ``weight_orig``, with the buffer ``weight_mask``; before each forward ``module.weight`` becomes
their product, so gradients reach what the mask keeps. ``remove`` makes the product the parameter.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Dict, List, Optional, Tuple, Type, Union

from ..._C import Tensor
from ..._tensor import creation as make
from ...linalg import matrix_norm, vector_norm
from ..modules.module import Module
from .convert_parameters import parameters_to_vector

Amount = Union[int, float]


# -- the base ----------------------------------------------------------------------------------------------------------


class BasePruningMethod(ABC):
    """A way to choose what is pruned. A subclass defines ``compute_mask``, and as ``PRUNING_TYPE`` which part of a parameter that is
    pruned already it looks at: 'unstructured' the values that are left, 'structured' the channels along ``dim`` that are left, 'global' all."""

    PRUNING_TYPE: str
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Ones and zeros of ``t``'s shape; ``default_mask`` is the one so far."""

    def apply_mask(self, module: Module) -> Tensor:
        """The parameter times its mask."""
        original = getattr(module, self._tensor_name + "_orig")
        return getattr(module, self._tensor_name + "_mask").to(original.dtype) * original

    @classmethod
    def apply(cls, module: Module, name: str, *args: Any, importance_scores: Optional[Tensor] = None, **kwargs: Any) -> BasePruningMethod:
        """Prunes ``module.name``, on top of what is pruned already. ``importance_scores``: what the mask is computed from in its place."""
        old = _take_hook(module, name)
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        if old is not None:
            container = old if isinstance(old, PruningContainer) else PruningContainer(old)
            container.add_pruning_method(method)
            method = container
        original = getattr(module, name)
        scores = original if importance_scores is None else importance_scores
        if scores.shape != original.shape:
            raise AssertionError(f"prune: `importance_scores` must be of {name}'s shape {tuple(original.shape)}, got {tuple(scores.shape)}")
        if old is None:
            module.register_parameter(name + "_orig", original)
            del module._parameters[name]
            mask = make.ones_like(original.detach())
        else:
            mask = getattr(module, name + "_mask").detach().clone()
        try:
            module.register_buffer(name + "_mask", method.compute_mask(scores.detach(), default_mask=mask))
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if old is None:
                del module._parameters[name + "_orig"]
                module.register_parameter(name, original)
            raise
        return method

    def prune(self, t: Tensor, default_mask: Optional[Tensor] = None, importance_scores: Optional[Tensor] = None) -> Tensor:
        """``t`` times the mask that is computed for it, without a module."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise AssertionError(f"prune: `importance_scores` must be of t's shape {tuple(t.shape)}, got {tuple(scores.shape)}")
        return t * self.compute_mask(scores.detach(), default_mask=make.ones_like(t.detach()) if default_mask is None else default_mask)

    def remove(self, module: Module) -> None:
        """Makes the masked values the parameter again. The hook stays; ``prune.remove`` takes it off, too."""
        name = self._tensor_name
        values = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters.pop(name + "_orig")
        assert original is not None
        original.data = values.detach()
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


def _hooks(module: Module) -> Iterator[Tuple[int, BasePruningMethod]]:
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod):
            yield key, hook


def _take_hook(module: Module, name: str) -> Optional[BasePruningMethod]:
    """Takes off the hook that prunes it already."""
    found = [(key, hook) for key, hook in _hooks(module) if hook._tensor_name == name]
    if len(found) > 1:
        raise AssertionError(f"prune: {len(found)} hooks prune {name} of {type(module).__name__}; keep one, a PruningContainer of all")
    for key, hook in found:
        del module._forward_pre_hooks[key]
        return hook
    return None


class PruningContainer(BasePruningMethod):
    """Several ways to prune one parameter, one after the other: each prunes what those before it left."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: Tuple[BasePruningMethod, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Adds one. TypeError for what is none, ValueError for one of another parameter."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"PruningContainer: expected a BasePruningMethod, got {type(method).__name__}")
        if self._tensor_name != method._tensor_name:
            raise ValueError(f"PruningContainer: prunes '{self._tensor_name}', and the method '{method._tensor_name}'; make one for each")
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: int) -> BasePruningMethod:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask so far, with what the last method prunes of what it left."""
        method, mask = self._pruning_methods[-1], default_mask.to(t.dtype)
        part = _part(method, t, default_mask)
        mask = mask.clone()
        mask[part] = method.compute_mask(t[part], default_mask=default_mask[part]).to(mask.dtype)
        return mask


def _part(method: BasePruningMethod, t: Tensor, mask: Tensor) -> Any:
    """An index of what a method looks at."""
    if method.PRUNING_TYPE == "unstructured":
        return mask == 1
    if method.PRUNING_TYPE == "global":
        return (slice(None),) * t.ndim
    if method.PRUNING_TYPE != "structured":
        raise ValueError(f"prune: {type(method).__name__}.PRUNING_TYPE must be 'unstructured', 'structured' or 'global', got {method.PRUNING_TYPE!r}")
    if not hasattr(method, "dim"):
        raise AttributeError(f"prune: {type(method).__name__} is structured, and has no `dim` that says along which dimension; set it in __init__")
    dim = method.dim + t.ndim if method.dim < 0 else method.dim
    if dim < 0:
        raise IndexError(f"prune: dim {method.dim} is not in [{-t.ndim}, {t.ndim - 1}]")
    kept = mask.sum(dim=[d for d in range(t.ndim) if d != dim]) != 0
    return (*(slice(None),) * dim, kept)


# -- the ways ----------------------------------------------------------------------------------------------------------


def _validate_pruning_amount_init(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"prune: `amount` must be a number, got {type(amount).__name__}")
    if float(amount) < 0 or not isinstance(amount, numbers.Integral) and float(amount) > 1:
        raise ValueError(f"prune: `amount` is a count (an int, at least 0) or a share (a float between 0 and 1), got {amount}")


def _count(amount: Any, size: int) -> int:
    """How many of ``size`` an amount is. ValueError for more than there are."""
    n = int(amount) if isinstance(amount, numbers.Integral) else round(amount * size)
    if n > size:
        raise ValueError(f"prune: `amount` asks for {n}, and there are only {size}")
    return n


def _count_channels(amount: Any, t: Tensor, dim: int) -> int:
    if t.ndim <= 1:
        raise ValueError(f"prune: channels need 2 dimensions or more, got the shape {tuple(t.shape)}; use an unstructured method")
    if dim >= t.ndim:
        raise IndexError(f"prune: dim {dim} is not in [{-t.ndim}, {t.ndim - 1}]")
    return _count(amount, t.shape[dim])


def _without(mask: Tensor, values: Tensor, n: int) -> Tensor:
    """The mask with zeros where the ``n`` smallest values are."""
    mask = mask.clone()
    if n:
        mask.view(-1)[values.reshape(-1).topk(n, largest=False).indices] = 0
    return mask


def _without_channels(mask: Tensor, values: Tensor, n: int, dim: int, dtype: Any) -> Tensor:
    """The mask with zeros in the channels along ``dim`` with the ``n`` smallest values."""
    if n == 0:
        return mask
    kept = make.ones_like(values, dtype=dtype)
    kept[values.topk(n, largest=False).indices] = 0
    return mask.to(dtype) * kept.reshape([-1 if d == dim % mask.ndim else 1 for d in range(mask.ndim)])


class Identity(BasePruningMethod):
    """Prunes nothing, and makes the parameter one that has a mask."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask so far."""
        return default_mask


class RandomUnstructured(BasePruningMethod):
    """Prunes values at random: ``amount`` of them (an int), or that share of them (a float)."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Amount) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask so far, with more zeros."""
        return _without(default_mask, make.rand(t.numel(), device=t.device), _count(self.amount, t.numel()))


class L1Unstructured(BasePruningMethod):
    """Prunes the values closest to 0: ``amount`` of them (an int), or that share of them (a float)."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Amount) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask so far, with more zeros."""
        return _without(default_mask, t.abs(), _count(self.amount, t.numel()))


class RandomStructured(BasePruningMethod):
    """Prunes channels along ``dim`` at random: ``amount`` of them (an int), or that share of them (a float)."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Amount, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount, self.dim = amount, dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask so far, with more zeros."""
        n = _count_channels(self.amount, t, self.dim)
        return _without_channels(default_mask, make.rand(t.shape[self.dim], device=t.device), n, self.dim, t.dtype)


class LnStructured(BasePruningMethod):
    """Prunes the channels along ``dim`` whose norm of order ``n`` is smallest: ``amount`` of them (an int), or that share of them (a float)."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Amount, n: Union[int, float, str], dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount, self.n, self.dim = amount, n, dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask so far, with more zeros."""
        n = _count_channels(self.amount, t, self.dim)
        others: List[int] = [d for d in range(t.ndim) if d != self.dim % t.ndim]
        number = 2 if self.n in ("fro", None) else self.n
        norms = matrix_norm(t, number, others) if isinstance(number, str) else vector_norm(t, number, others)
        return _without_channels(default_mask, norms, n, self.dim, t.dtype)


class CustomFromMask(BasePruningMethod):
    """Prunes where a mask is 0."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask so far, with more zeros."""
        if default_mask.shape != self.mask.shape:
            raise AssertionError(f"prune: the mask of shape {tuple(self.mask.shape)} does not fit a parameter of {tuple(default_mask.shape)}")
        return default_mask * self.mask.to(default_mask.dtype)


# -- functions ---------------------------------------------------------------------------------------------------------


def identity(module: Module, name: str) -> Module:
    """Prunes nothing of ``module.name``, and makes it a parameter with a mask; the module."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: Amount) -> Module:
    """Prunes ``amount`` values of ``module.name`` (a float: that share), drawn at random; the module."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: Amount, importance_scores: Optional[Tensor] = None) -> Module:
    """Prunes the ``amount`` values of ``module.name`` (a float: that share) closest to 0, or with the smallest scores; the module."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: Amount, dim: int) -> Module:
    """Prunes ``amount`` channels of ``module.name`` along ``dim`` (a float: that share), drawn at random; the module."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Module, name: str, amount: Amount, n: Union[int, float, str], dim: int,
                  importance_scores: Optional[Tensor] = None) -> Module:
    """Prunes the ``amount`` channels of ``module.name`` along ``dim`` (a float: that share) with the smallest norms of order ``n``."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prunes ``module.name`` where ``mask`` is 0; the module."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters: Iterable[Tuple[Module, str]], pruning_method: Type[BasePruningMethod],
                        importance_scores: Optional[Dict[Tuple[Module, str], Tensor]] = None, **kwargs: Any) -> None:
    """Prunes values of several parameters, given as (module, name), as if they were one. ``pruning_method(**kwargs)``, an unstructured one,
    chooses."""
    if not isinstance(parameters, Iterable):
        raise TypeError(f"global_unstructured: `parameters` must be pairs (module, name), got {type(parameters).__name__}")
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError(f"global_unstructured: expected a dict {{(module, name): scores}}, got {type(scores).__name__}")
    pairs = list(parameters)
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(f"global_unstructured: takes an unstructured method, and {pruning_method.__name__} is {method.PRUNING_TYPE}")
    method._tensor_name = "temp"
    tensors = [getattr(module, name) for module, name in pairs]
    values = parameters_to_vector([scores.get(pair, t).detach() for pair, t in zip(pairs, tensors)])
    masks = [getattr(module, name + "_mask", None) for module, name in pairs]
    so_far = parameters_to_vector([make.ones_like(t.detach()) if m is None else m for t, m in zip(tensors, masks)])
    parts = PruningContainer(method).compute_mask(values, so_far).split([t.numel() for t in tensors])
    for (module, name), t, part in zip(pairs, tensors, parts):
        custom_from_mask(module, name, mask=part.view_as(t))


def remove(module: Module, name: str) -> Module:
    """Makes the masked values of ``module.name`` the parameter, without a mask; the module. ValueError for one that is not pruned."""
    hook = _take_hook(module, name)
    if hook is None:
        raise ValueError(f"prune.remove: {type(module).__name__}'s '{name}' is not pruned")
    hook.remove(module)
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of one within it, is pruned."""
    return any(True for _, inner in module.named_modules() for _ in _hooks(inner))
