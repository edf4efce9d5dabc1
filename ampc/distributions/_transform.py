"""The base class of transforms, and transforms of transforms and of shapes."""

from __future__ import annotations

import math
import weakref
from typing import Any, List, Sequence, Tuple

from .._C import Tensor
from .._tensor import creation as make
from .._tensor.device import Size
from . import constraints
from .constraints import Constraint
from .utils import sum_rightmost

__all__ = ["ComposeTransform", "IndependentTransform", "ReshapeTransform", "Transform", "identity_transform"]


class Transform:
    """A function y = t(x) of Tensors with an inverse, t.inv. Subclasses define ``domain``, ``codomain``, ``_call``, ``_inverse`` and
    ``log_abs_det_jacobian``; ``bijective``, and ``sign`` (1 or -1) where it is monotone. With ``cache_size=1`` (0 by default) the last pair of
    x and y is kept, so that t.inv(t(x)) is x itself. ValueError for other sizes."""

    bijective: Any = False
    domain: Any
    codomain: Any

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError(f"{type(self).__name__}: cache_size must be 0 or 1, got {cache_size}")
        self._cache_size = cache_size
        self._inv: Any = None
        self._cached_x_y: Tuple[Any, Any] = None, None

    def __getstate__(self) -> Any:
        """For pickle and deepcopy, which weak references do not pass."""
        return {**self.__dict__, "_inv": None} if isinstance(self._inv, weakref.ref) else self.__dict__

    @property
    def event_dim(self) -> int:
        """How many of the last dimensions one event has, of x and of y."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise ValueError(f"{type(self).__name__}: x and y have different event dimensions; ask domain or codomain")
        return self.domain.event_dim

    @property
    def inv(self) -> Transform:
        """The inverse, whose own inverse is this transform."""
        inverse = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = _InverseTransform(self)
            self._inv = weakref.ref(inverse)
        return inverse

    @property
    def sign(self) -> Any:
        """1 where it grows, -1 where it falls. NotImplementedError where it is not monotone."""
        raise NotImplementedError(f"{type(self).__name__} has no sign")

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The same transform with that cache, 0 or 1 pairs."""
        if self._cache_size == cache_size:
            return self
        new = type(self).__new__(type(self))
        new.__dict__.update(self.__dict__, _cache_size=cache_size, _inv=None, _cached_x_y=(None, None))
        return new

    def __eq__(self, other: object) -> bool:
        return self is other or isinstance(other, Transform) and type(self) is type(other) and _same(self._facts(), other._facts())

    __hash__ = object.__hash__

    def _facts(self) -> Sequence[Any]:
        """What distinguishes it from others of its type."""
        return ()

    def __call__(self, x: Tensor) -> Tensor:
        kept_x, kept_y = self._cached_x_y
        if self._cache_size and x is kept_x:
            return kept_y
        y = self._call(x)
        if self._cache_size:
            self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        kept_x, kept_y = self._cached_x_y
        if self._cache_size and y is kept_y:
            return kept_x
        x = self._inverse(y)
        if self._cache_size:
            self._cached_x_y = x, y
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no _call")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |det dy/dx| of each event: of the shape of x without the dimensions of an event. NotImplementedError where it has none."""
        raise NotImplementedError(f"{type(self).__name__} has no log_abs_det_jacobian")

    def forward_shape(self, shape: Any) -> Any:
        """The shape of y for an x of ``shape``. ValueError where that has fewer dimensions than an event."""
        return self._long_enough(shape, self.domain)

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of x for a y of ``shape``. ValueError where that has fewer dimensions than an event."""
        return self._long_enough(shape, self.codomain)

    def _long_enough(self, shape: Any, space: Constraint) -> Size:
        if len(shape) < space.event_dim:
            raise ValueError(f"{type(self).__name__}: needs {space.event_dim} dimensions or more, got {len(shape)}")
        return Size(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(bool((x == y).all()) if isinstance(x, Tensor) or isinstance(y, Tensor) else x == y for x, y in zip(a, b))


class _InverseTransform(Transform):
    def __init__(self, transform: Transform) -> None:
        super().__init__(transform._cache_size)
        self._inv = transform

    domain = property(lambda self: self._inv.codomain)
    codomain = property(lambda self: self._inv.domain)
    bijective = property(lambda self: self._inv.bijective)
    sign = property(lambda self: self._inv.sign)
    inv = property(lambda self: self._inv)

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self.inv.with_cache(cache_size).inv

    def _facts(self) -> Sequence[Any]:
        return (self.inv,)

    def __call__(self, x: Tensor) -> Tensor:
        return self.inv._inv_call(x)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self.inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self.inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.inv.forward_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inv!r})"


# -- transforms of transforms ---------------------------------------------------------------------------------------------


class ComposeTransform(Transform):
    """One after the other: ``parts[0]`` first; an empty list is the identity."""

    def __init__(self, parts: List[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [p.with_cache(cache_size) for p in parts] if cache_size else list(parts)

    def _end(self, walk: List[Transform], near: str, far: str) -> Constraint:
        """The constraint where a walk through the parts ends, with as many event dimensions as any part needs there."""
        if not walk:
            return constraints.real
        dims, end = getattr(walk[0], far).event_dim, getattr(walk[-1], near)
        for part in walk:
            here = getattr(part, near).event_dim
            dims = max(dims + here - getattr(part, far).event_dim, here)
        return constraints.independent(end, dims - end.event_dim) if dims > end.event_dim else end

    domain = property(lambda self: self._end(self.parts[::-1], "domain", "codomain"))
    codomain = property(lambda self: self._end(self.parts, "codomain", "domain"))
    bijective = property(lambda self: all(p.bijective for p in self.parts))

    @property
    def sign(self) -> Any:
        sign: Any = 1
        for p in self.parts:
            sign = sign * p.sign
        return sign

    @property
    def inv(self) -> Transform:
        inverse = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = ComposeTransform([p.inv for p in reversed(self.parts)])
            self._inv, inverse._inv = weakref.ref(inverse), weakref.ref(self)
        return inverse

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self if self._cache_size == cache_size else ComposeTransform([p.with_cache(cache_size) for p in self.parts], cache_size)

    def _facts(self) -> Sequence[Any]:
        return self.parts

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return make.zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        dims, total = self.domain.event_dim, x.new_zeros(())
        for part, a, b in zip(self.parts, values, values[1:]):
            total = total + sum_rightmost(part.log_abs_det_jacobian(a, b), dims - part.domain.event_dim)
            dims += part.codomain.event_dim - part.domain.event_dim
        return total

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        inside = ",\n    ".join(repr(p) for p in self.parts)
        return f"{type(self).__name__}(\n    {inside}\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """``base_transform`` with the last ``reinterpreted_batch_ndims`` batch dimensions taken as part of the event, over which the log determinant
    is added up. ValueError for values of fewer dimensions."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform, self.reinterpreted_batch_ndims = base_transform.with_cache(cache_size), reinterpreted_batch_ndims

    domain = property(lambda self: constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims))
    codomain = property(lambda self: constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims))
    bijective = property(lambda self: self.base_transform.bijective)
    sign = property(lambda self: self.base_transform.sign)

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self if self._cache_size == cache_size else IndependentTransform(self.base_transform, self.reinterpreted_batch_ndims, cache_size)

    def _facts(self) -> Sequence[Any]:
        return self.base_transform, self.reinterpreted_batch_ndims

    def _call(self, x: Tensor) -> Tensor:
        self._long_enough(x.shape, self.domain)
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        self._long_enough(y.shape, self.codomain)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """The last dimensions, of ``in_shape``, as ``out_shape``. ValueError where they hold different numbers of elements."""

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError(f"ReshapeTransform: {math.prod(self.in_shape)} values of {self.in_shape} do not fill {self.out_shape}")
        super().__init__(cache_size)

    domain = property(lambda self: constraints.independent(constraints.real, len(self.in_shape)))
    codomain = property(lambda self: constraints.independent(constraints.real, len(self.out_shape)))

    def _facts(self) -> Sequence[Any]:
        return self.in_shape, self.out_shape

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:x.dim() - len(self.in_shape)], *self.out_shape)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(*y.shape[:y.dim() - len(self.out_shape)], *self.in_shape)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(tuple(x.shape[:x.dim() - len(self.in_shape)]))

    def forward_shape(self, shape: Any) -> Any:
        return _exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return _exchanged(shape, self.out_shape, self.in_shape)


def _exchanged(shape: Any, old: Tuple[int, ...], new: Tuple[int, ...]) -> Size:
    cut = len(shape) - len(old)
    if cut < 0 or tuple(shape[cut:]) != old:
        raise ValueError(f"ReshapeTransform: a shape that ends with {old} was expected, got {tuple(shape)}")
    return Size((*shape[:cut], *new))
