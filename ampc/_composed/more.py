"""Methods that torch's Tensor has beside: in-place forms of what has none in the table, sliding windows, geometry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, List, Optional, Tuple

from .. import _C, _checks
from .. import _creation as make
from .._C import Tensor, dtype
from .._out import in_place, takes_out

_f = _C._functions

__all__ = ["adjoint", "asarray", "can_cast", "cholesky_inverse", "cholesky_solve", "conj", "detach", "fill", "gcd", "get_device", "gradient",
           "greater", "greater_equal", "is_complex", "is_conj", "is_inference", "is_nonzero", "is_same_size", "is_signed", "isreal", "lcm", "less",
           "less_equal", "logspace", "narrow_copy", "not_equal", "randint_like", "real", "resolve_conj", "resolve_neg", "scalar_tensor",
           "split_with_sizes", "triangular_solve", "typename", "bilinear", "grid_sampler"]
METHODS = ["adjoint", "cholesky_inverse", "cholesky_solve", "conj", "gcd", "is_conj", "is_neg", "is_nonzero", "is_set_to", "isreal", "lcm",
           "narrow_copy", "resolve_conj", "resolve_neg", "split_with_sizes", "triangular_solve", "fill_diagonal_", "apply_", "map_",
           "resize_", "resize_as_", "new", "as_strided_scatter", "is_shared", "share_memory_", "to_dense", "__array_namespace__", "to_device"]

greater, greater_equal, less, less_equal, not_equal = (_f[n] for n in ("gt", "ge", "lt", "le", "ne"))


def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions exchanged; RuntimeError for a vector, which has one."""
    if input.ndim == 0:
        return input
    if input.ndim == 1:
        raise RuntimeError("adjoint: needs a matrix or a batch of matrices, got 1 dimension")
    return input.transpose(-2, -1)


def conj(input: Tensor) -> Tensor:
    """x: there are no complex tensors."""
    return input


real = resolve_conj = resolve_neg = to_dense = conj


def is_conj(input: Tensor) -> bool:
    """False: there are no complex tensors."""
    return False


is_neg = is_complex = is_conj


def isreal(input: Tensor) -> Tensor:
    """True everywhere: there are no complex tensors."""
    return make.ones_like(input, dtype=_C.bool)


def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not 0. RuntimeError for more."""
    if input.numel() != 1:
        raise RuntimeError(f"is_nonzero: expected one element, got {input.numel()}")
    return bool(input.item())


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both are the same view of the same memory."""
    return self.data_ptr() == tensor.data_ptr() and self.shape == tensor.shape and self.stride() == tensor.stride()


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Tensor.is_same_size"""
    return input.is_same_size(other)


def is_signed(input: Tensor) -> bool:
    """Tensor.is_signed"""
    return input.is_signed()


def is_inference(input: Tensor) -> bool:
    """Tensor.is_inference"""
    return input.is_inference()


def get_device(input: Tensor) -> int:
    """Tensor.get_device"""
    return input.get_device()


def detach(input: Tensor) -> Tensor:
    """Tensor.detach"""
    return input.detach()


def fill(input: Tensor, value: Any) -> Tensor:
    """A tensor like x, filled."""
    return input.clone().fill_(value)


def typename(obj: Any) -> str:
    """The name of an object's type, of a tensor as torch's old ones."""
    return obj.type() if isinstance(obj, Tensor) else f"{type(obj).__module__}.{type(obj).__qualname__}"


def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether values of one dtype are of the other's kind, or of a lower one."""
    rank = lambda d: 3 if d.is_floating_point else 1 if d == _C.bool else 2  # noqa: E731
    return rank(from_) <= rank(to)


def asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: Optional[bool] = None, requires_grad: bool = False) -> Tensor:
    """as_tensor, with ``copy`` True or False asked for."""
    from .._array_api import asarray as standard
    t = standard(obj, dtype=dtype, device=device, copy=copy)
    return t.requires_grad_() if requires_grad else t


def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A 0-d tensor."""
    return make.full((), s, dtype=dtype or _C.get_default_dtype(), device=device)


def logspace(start: float, end: float, steps: int, base: float = 10.0, *, dtype: Any = None, device: Any = None) -> Tensor:
    """base ** linspace(start, end, steps)"""
    return _f["pow"](base, make.linspace(start, end, steps, dtype=_C.float64, device=device)).to(dtype or _C.get_default_dtype())


def randint_like(input: Tensor, low: int, high: Optional[int] = None, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Random integers in [low, high) (or [0, low)), as many as x has."""
    bounds = (0, low) if high is None else (low, high)
    return make.randint(*bounds, tuple(input.shape), dtype=_C.int64, device=device or input.device).to(dtype or input.dtype)


def split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> Tuple[Tensor, ...]:
    """split into parts of these sizes."""
    return input.split(list(split_sizes), dim)


def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """narrow, in memory of its own."""
    return input.narrow(dim, start, length).clone()


def as_strided_scatter(self: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: Optional[int] = None) -> Tensor:
    """A copy with src written through a strided view of it."""
    out = self.clone()
    out.as_strided(list(size), list(stride), storage_offset or 0).copy_(src)
    return out


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """The main diagonal filled, in place; ``wrap``: again after each square of a tall matrix."""
    if self.ndim < 2:
        raise RuntimeError(f"fill_diagonal_: expected at least 2 dimensions, got {self.ndim}")
    if self.ndim > 2:
        if len(set(self.shape)) != 1:
            raise RuntimeError(f"fill_diagonal_: more than 2 dimensions must have one size, got {list(self.shape)}")
        self.as_strided([self.shape[0]], [sum(self.stride())], self.storage_offset()).fill_(fill_value)
        return self
    step = self.shape[1] + 1
    for first in range(0, self.shape[0] if wrap else 1, step):
        self[first:].diagonal().fill_(fill_value)
    return self


def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Each element replaced by what a Python function makes of it; slow, CPU only."""
    if self.is_cuda:
        raise TypeError("apply_: works on the CPU only")
    values = [callable(v) for v in self.reshape(-1).tolist()]
    return self.copy_(make.tensor(values, dtype=self.dtype, device="cpu").reshape(self.shape))


def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Each element replaced by a Python function of it and tensor's; slow, CPU only."""
    if self.is_cuda:
        raise TypeError("map_: works on the CPU only")
    pairs = zip(self.reshape(-1).tolist(), tensor.expand(self.shape).reshape(-1).tolist())
    return self.copy_(make.tensor([callable(a, b) for a, b in pairs], dtype=self.dtype, device="cpu").reshape(self.shape))


def resize_(self: Tensor, *sizes: Any) -> Tensor:
    """Another size in place: what fits of the old values, in order, the rest uninitialised. RuntimeError where gradients are
    recorded."""
    if self.requires_grad:
        raise RuntimeError("resize_: the tensor requires gradients")
    size: List[int] = list(make._size(sizes))
    if any(n < 0 for n in size):
        raise RuntimeError(f"resize_: sizes must be 0 or more, got {size}")
    total = 1
    for n in size:
        total *= n
    flat = self.detach().reshape(-1)
    if total > flat.shape[0]:
        flat = _f["cat"]([flat, flat.new_empty(total - flat.shape[0])])
    self.data = flat[:total].reshape(size)
    return self


def resize_as_(self: Tensor, the_template: Tensor) -> Tensor:
    """resize_ to another's shape."""
    return resize_(self, *the_template.shape)


def new(self: Tensor, *args: Any) -> Tensor:
    """A tensor of the same dtype and device: of a size, of data, or on the memory of another tensor, without history."""
    if len(args) == 1 and isinstance(args[0], Tensor):
        return args[0].detach().to(self.dtype)
    if len(args) == 1 and not isinstance(args[0], int):
        return self.new_tensor(args[0])
    return self.new_empty(args)


def is_shared(self: Tensor) -> bool:
    """False: memory is not shared between processes."""
    return False


def share_memory_(self: Tensor) -> Tensor:
    """NotImplementedError: memory is not shared between processes."""
    raise NotImplementedError("share_memory_: memory is not shared between processes; send arrays, or use threads")


@takes_out
def gcd(input: Tensor, other: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """The greatest common divisor of integers, by Euclid's steps for all at once."""
    a, b = input.abs(), other.abs()
    if a.is_floating_point() or b.is_floating_point():
        raise RuntimeError("gcd: expected integers")
    a, b = a + b * 0, b + a * 0
    while bool((b != 0).any()):
        rest = a % _f["where"](b == 0, 1, b)
        a, b = _f["where"](b == 0, a, b), _f["where"](b == 0, b, rest)
    return a


@takes_out
def lcm(input: Tensor, other: Tensor, *, out: Optional[Tensor] = None) -> Tensor:
    """The least common multiple of integers."""
    d = gcd(input, other)
    return (input // _f["where"](d == 0, 1, d) * other).abs()


def gradient(input: Tensor, *, spacing: Any = 1.0, dim: Any = None, edge_order: int = 1) -> Tuple[Tensor, ...]:
    """Central differences along each dimension, ``edge_order`` 1 or 2 at the ends; spacing one number or one a dimension."""
    dims = list(range(input.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    steps = [float(spacing)] * len(dims) if isinstance(spacing, (int, float)) else [float(s) for s in spacing]
    out = []
    for d, h in zip(dims, steps):
        n = input.shape[d]
        if n < edge_order + 1:
            raise RuntimeError(f"gradient: dimension {d} needs at least {edge_order + 1} values, got {n}")
        at = lambda i, k=1, d=d: input.narrow(d, i, k)  # noqa: E731
        inner = (at(2, n - 2) - at(0, n - 2)) / (2 * h) if n > 2 else input.narrow(d, 0, 0)
        if edge_order == 1:
            ends = ((at(1) - at(0)) / h, (at(n - 1) - at(n - 2)) / h)
        else:
            ends = ((-1.5 * at(0) + 2 * at(1) - 0.5 * at(2)) / h, (1.5 * at(n - 1) - 2 * at(n - 2) + 0.5 * at(n - 3)) / h)
        out.append(_f["cat"]([ends[0], inner, ends[1]], d))
    return tuple(out)


def cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:
    """The inverse of the matrix whose Cholesky factor this is."""
    L = input.transpose(-2, -1) if upper else input
    L = L.tril()
    from ..linalg import inv
    return inv(L @ L.transpose(-2, -1))


def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X with A X = B, of the matrix A whose Cholesky factor is L."""
    from ..linalg import solve_triangular
    low = L.transpose(-2, -1) if upper else L
    return solve_triangular(low.transpose(-2, -1), solve_triangular(low, B, upper=False), upper=True)


def triangular_solve(b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Tuple[Tensor, Tensor]:
    """(X, A) with A X = b of a triangle of A."""
    from ..linalg import solve_triangular
    part = A.triu() if upper else A.tril()
    X = solve_triangular(part.transpose(-2, -1) if transpose else part, b, upper=upper != transpose, unitriangular=unitriangular)
    return X, A.clone()


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """nn.functional.bilinear"""
    return _f["bilinear"](input1, input2, weight, bias)


def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """nn.functional.grid_sample, its modes as numbers."""
    from ..nn.functional import grid_sample
    mode, outside = ("bilinear", "nearest", "bicubic")[interpolation_mode], ("zeros", "border", "reflection")[padding_mode]
    return grid_sample(input, grid, mode, outside, align_corners)


# -- in-place forms ----------------------------------------------------------------------------------------------------------------


def _in_place(name: str) -> Callable[..., Tensor]:
    def f(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return in_place(self, getattr(Tensor, name), *args, **kwargs)
    f.__name__, f.__doc__ = name + "_", f"{name}, in place."
    return f


IN_PLACE = ["absolute", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "clamp_max", "clamp_min", "deg2rad", "eq", "fix",
            "float_power", "gcd", "ge", "greater", "greater_equal", "gt", "lcm", "ldexp", "le", "less", "less_equal", "logit", "lt", "ne", "negative",
            "not_equal", "rad2deg", "sgn", "sinc", "true_divide"]


def install() -> None:
    """Attaches the in-place forms, once all plain ones are there."""
    for name in IN_PLACE:
        if not hasattr(Tensor, name + "_"):
            setattr(Tensor, name + "_", _in_place(name))


def __array_namespace__(self: Tensor, *, api_version: Optional[str] = None) -> Any:
    """The Python array API's functions for tensors. ValueError for a version that is not there."""
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(f"__array_namespace__: version {api_version!r} is not supported; 2024.12 is")
    from .. import _array_api
    return _array_api


def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """to(device)"""
    return self.to(device)


_checks.install(globals())
