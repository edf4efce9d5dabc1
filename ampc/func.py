"""torch.func: derivatives of functions as functions, modules as functions of their parameters, and loops over a dimension."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set, Tuple, Union

from . import _C, _ops
from ._C import Tensor
from ._names.missing import absent_from
from ._tensor import creation as make
from .autograd import enable_grad
from .autograd import functional as _functional
from .nn import Module, ModuleList
from .nn.utils.stateless import call_with
from .utils._pytree import tree_flatten, tree_unflatten

__all__ = ["functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
           "stack_module_state", "vjp", "vmap"]

ArgNums = Union[int, Tuple[int, ...]]


def functional_call(module: Module, parameter_and_buffer_dicts: Any, args: Any = None, kwargs: Optional[Dict[str, Any]] = None, *,
                    tie_weights: bool = True, strict: bool = False) -> Any:
    """``module(*args, **kwargs)`` with other tensors for the parameters and buffers that the dict, or several dicts, name; the module
    itself stays as it is. What it sets in their place meanwhile stands in the dict afterwards, where there is one only. A tensor given for
    one of several tied names stands for all of them when ``tie_weights``. Names that it has not are passed over, as in torch; with
    ``strict`` they, and names that are left out, are a RuntimeError."""
    return call_with(module, parameter_and_buffer_dicts, args, kwargs, tie_weights, strict)


def stack_module_state(models: Union[Sequence[Module], ModuleList]) -> Tuple[Dict[str, Tensor], Dict[str, Tensor]]:
    """(parameters, buffers) of several modules of one class, each stacked along a new first dimension, for `vmap` of `functional_call`. Stacked
    parameters are leaves of their own. RuntimeError for no modules, modules in different modes (training or not), different classes, and
    parameters of one name some of which require gradients."""
    if not models:
        raise RuntimeError("stack_module_state: expected at least one module, got none")
    if len({m.training for m in models}) > 1:
        raise RuntimeError("stack_module_state: some modules are in training mode and some are not; call train() or eval() on all")
    kinds = {type(m) for m in models}
    if len(kinds) > 1:
        raise RuntimeError(f"stack_module_state: expected modules of one class, got {', '.join(sorted(k.__name__ for k in kinds))}")
    parameters = {name: _stacked(name, [dict(m.named_parameters())[name] for m in models]) for name, _ in models[0].named_parameters()}
    buffers = {name: _stacked(name, [dict(m.named_buffers())[name] for m in models]) for name, _ in models[0].named_buffers()}
    return parameters, buffers


def _stacked(name: str, tensors: List[Tensor]) -> Tensor:
    needs = {t.requires_grad for t in tensors}
    if len(needs) > 1:
        raise RuntimeError(f"stack_module_state: {name} requires gradients in some modules and not in others; call requires_grad_() on all alike")
    return _ops.stack([t.detach() for t in tensors]).requires_grad_(needs.pop())


def functionalize(func: Callable, *, remove: str = "mutations") -> Callable:
    """A function with func's results. torch's replaces writes in place, and with ``remove="mutations_and_views"`` views too, for what traces the
    calls. ampc traces nothing and makes the writes, so to write over what backward needs stays an error. RuntimeError for another ``remove``."""
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(f"functionalize: `remove` must be 'mutations' or 'mutations_and_views', got {remove!r}")

    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return call


# -- derivatives ---------------------------------------------------------------------------------------------------


def _numbered(argnums: ArgNums, count: int, what: str) -> Tuple[int, ...]:
    """The positions of the arguments that ``argnums`` names, counted from the first."""
    given = argnums if isinstance(argnums, tuple) else (argnums,)
    if not given or not all(isinstance(n, int) and -count <= n < count for n in given):
        raise RuntimeError(f"{what}: `argnums` must be the number of one of the {count} arguments, or a tuple of such numbers, got {argnums!r}")
    positions = tuple(n % count for n in given)
    if len(set(positions)) < len(positions):
        raise RuntimeError(f"{what}: `argnums` must name each argument once, got {argnums!r}")
    return positions


def _parted(result: Any, has_aux: bool, what: str) -> Tuple[Any, Any]:
    """What a function returned, and the tensors that come with it."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise RuntimeError(f"{what}: with has_aux the function must return two things, its result and what comes with it")
    for t in tree_flatten(result[1])[0]:
        if not isinstance(t, Tensor):
            raise RuntimeError(f"{what}: what comes with the result must be Tensors or structures of them, got {type(t).__name__}")
    return result


def _outputs(result: Any, what: str) -> Tuple[List[Tensor], Any]:
    """The tensors of a function's result, and its structure."""
    tensors, spec = tree_flatten(result)
    if not tensors or not all(isinstance(t, Tensor) for t in tensors):
        raise RuntimeError(f"{what}: the function must return Tensors, one or a structure of them, got {type(result).__name__}")
    return tensors, spec


def _leaves(tree: Any, outer: bool) -> Tuple[List[Tensor], Any]:
    """The tensors of a structure, to differentiate by, and the structure: where gradients are recorded outside (``outer``) those with
    a history keep it."""
    tensors, spec = tree_flatten(tree)
    for t in tensors:
        if not isinstance(t, Tensor):
            raise ValueError(f"arguments to differentiate by must be Tensors or structures of them, got {type(t).__name__}")
    return [t.view(t.shape) if outer and t.requires_grad else t.detach().requires_grad_() for t in tensors], spec


def _reaches(results: Iterable[Tensor], own: Set[int]) -> bool:
    """Whether backward from any of these comes to another leaf than ``own``, by their identity."""
    todo: List[Any] = [t.grad_fn for t in results if t.grad_fn is not None]
    seen = set(todo)
    if any(t.requires_grad and t.grad_fn is None and id(t) not in own for t in results):
        return True
    while todo:
        node = todo.pop()
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in own and not hasattr(leaf, "_stands_in"):
            return True
        for before, _ in node.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                todo.append(before)
    return False


def _settled(tree: Any, own: Sequence[Tensor], outer: bool) -> Any:
    """Results as the caller sees them: with the history that leads outside ``own``, where gradients are recorded there; else with none."""
    ids = {id(t) for t in own}
    tensors, spec = tree_flatten(tree)
    live = outer and _reaches([t for t in tensors if isinstance(t, Tensor)], ids)
    return tree_unflatten([t if not isinstance(t, Tensor) or live and _reaches([t], ids) else t.detach() for t in tensors], spec)


def grad_and_value(func: Callable, argnums: ArgNums = 0, has_aux: bool = False) -> Callable:
    """A function of the same arguments that returns (gradients, value). ``func`` must return a single number.

    The gradients have the structure of the arguments numbered ``argnums``. With ``has_aux``, func returns (value, more) and the result is
    (gradients, (value, more)). Both can be differentiated with respect to other tensors that func uses, such as parameters."""
    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        indices = _numbered(argnums, len(args), "grad")
        outer = _C.is_grad_enabled()
        with enable_grad():
            parts, given = [_leaves(args[p], outer) for p in indices], list(args)
            for p, (leaves, spec) in zip(indices, parts):
                given[p] = tree_unflatten(leaves, spec)
            value, aux = _parted(func(*given, **kwargs), has_aux, "grad")
            if not isinstance(value, Tensor) or value.dim():
                came = getattr(value, "shape", type(value).__name__)
                raise RuntimeError(f"grad: the function must give one number, a tensor without dimensions, got {came}")
            every = [t for leaves, _ in parts for t in leaves]
            found = _functional._derivatives((value,), tuple(every), (None,), outer, False, "grad")
        each = iter(found)
        made = [tree_unflatten([next(each) for _ in leaves], spec) for leaves, spec in parts]
        grads, value, aux = _settled((made[0] if isinstance(argnums, int) else tuple(made), value, aux), every, outer)
        return (grads, (value, aux)) if has_aux else (grads, value)

    return call


def grad(func: Callable, argnums: ArgNums = 0, has_aux: bool = False) -> Callable:
    """As `grad_and_value` without the value; with ``has_aux`` (gradients, more)."""
    both = grad_and_value(func, argnums, has_aux)

    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        grads, value = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return call


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> Any:
    """(value, f), where f(cotangents) gives the gradients of the primals, a tuple, of a single primal too. What f gives can be differentiated by the
    primals where gradients are recorded when f is called."""
    outer = _C.is_grad_enabled()
    with enable_grad():
        parts = [_leaves(p, True) for p in primals]
        result = func(*(tree_unflatten(*part) for part in parts))
    value, aux = _parted(result, has_aux, "vjp")
    outputs, of_value = _outputs(value, "vjp")
    every = tuple(t for leaves, _ in parts for t in leaves)

    def back(cotangents: Any, retain_graph: bool = True) -> Tuple[Any, ...]:
        recorded = _C.is_grad_enabled()
        weights, of_weights = tree_flatten(cotangents)
        if not all(isinstance(w, Tensor) for w in weights):
            raise TypeError("vjp: the cotangents must be Tensors")
        if of_weights != of_value or any(w.shape != y.shape for w, y in zip(weights, outputs)):
            raise RuntimeError("vjp: the cotangents must have the structure and the shapes of the function's result")
        found = _functional._derivatives(tuple(outputs), every, weights, recorded, False, "vjp")
        each = iter(found)
        made = tuple(tree_unflatten([next(each) for _ in leaves], spec) for leaves, spec in parts)
        return _settled(made, every, recorded)

    value, aux = _settled((value, aux), every, outer)
    return (value, back, aux) if has_aux else (value, back)


class _Flat:
    """A function of the tensors of ``given``, a structure of arguments, that gives those of its result; it keeps the result's structure as
    ``shape``, and what ``has_aux`` says comes with it as ``aux``."""

    def __init__(self, func: Callable, given: Tuple[Any, ...], has_aux: bool, what: str) -> None:
        self.func, self.has_aux, self.what = func, has_aux, what
        self.leaves, self.spec = tree_flatten(given)
        self.shape: Any = None
        self.aux: Any = None

    def __call__(self, *leaves: Tensor) -> Tuple[Tensor, ...]:
        result = self.func(*tree_unflatten(list(leaves), self.spec))
        result, self.aux = _parted(result, self.has_aux, self.what)
        outputs, self.shape = _outputs(result, self.what)
        return tuple(outputs)

    def differentiated(self, derivative: Callable, *more: Any) -> Any:
        """``derivative`` (of autograd.functional) by the tensors; it can be differentiated by what lies outside."""
        outer = _C.is_grad_enabled()
        leaves = tuple(_leaves(tuple(self.leaves), outer)[0])
        found = _settled(derivative(self, leaves, *more, create_graph=outer), leaves, outer)
        self.aux = _settled(self.aux, leaves, outer)
        return found


def jvp(func: Callable, primals: Tuple[Any, ...], tangents: Tuple[Any, ...], *, strict: bool = False, has_aux: bool = False) -> Any:
    """(value, the derivative along the tangents), which have the structure of the primals. With ``has_aux``, func returns (value, more) and the
    result is (value, derivative, more). RuntimeError for primals that are no tuple of Tensors or structures of them, and for tangents of
    another structure or shape."""
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise RuntimeError(f"jvp: `primals` and `tangents` must be tuples, got {type(primals).__name__} and {type(tangents).__name__}")
    flat = _Flat(func, primals, has_aux, "jvp")
    moved, spec = tree_flatten(tangents)
    if not flat.leaves or not all(isinstance(t, Tensor) for t in (*flat.leaves, *moved)):
        raise RuntimeError("jvp: `primals` and `tangents` must hold Tensors, at least one, and nothing else")
    if spec != flat.spec or any(m.shape != x.shape or m.dtype != x.dtype for m, x in zip(moved, flat.leaves)):
        raise RuntimeError("jvp: the tangents must have the structure, shapes and dtypes of the primals")
    value, along = (tree_unflatten(list(found), flat.shape) for found in flat.differentiated(partial(_functional.jvp, strict=strict), tuple(moved)))
    return (value, along, flat.aux) if has_aux else (value, along)


def linearize(func: Callable, *primals: Any) -> Tuple[Any, Callable]:
    """(value, f), where f(*tangents) gives the derivative along the tangents, as `jvp` does."""
    return func(*primals), lambda *tangents: jvp(func, primals, tangents)[1]


def jacrev(func: Callable, argnums: ArgNums = 0, *, has_aux: bool = False, chunk_size: Any = None) -> Callable:
    """A function that gives the Jacobian of func's result by the arguments numbered ``argnums``, [*result, *argument]. Of several results,
    and for a structure of arguments, it is a structure of them. With ``has_aux``, func returns (result, more), and so does the function."""
    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        _check_chunk_size(chunk_size, "jacrev")
        indices = _numbered(argnums, len(args), "jacrev")

        def inner(*chosen: Any) -> Any:
            given = list(args)
            for p, value in zip(indices, chosen):
                given[p] = value
            return func(*given, **kwargs)

        flat = _Flat(inner, tuple(args[p] for p in indices), has_aux, "jacrev")
        rows = [tree_unflatten(list(row), flat.spec) for row in flat.differentiated(_functional.jacobian)]
        found = tree_unflatten([row[0] if isinstance(argnums, int) else row for row in rows], flat.shape)
        return (found, flat.aux) if has_aux else found

    return call


def jacfwd(func: Callable, argnums: ArgNums = 0, has_aux: bool = False, *, chunk_size: Any = None, randomness: str = "error") -> Callable:
    """As `jacrev`, by which it is computed. ``randomness``: as in `vmap`; with 'error' func may draw no random numbers."""
    _check_randomness(randomness, "jacfwd")
    backward = jacrev(func, argnums, has_aux=has_aux)

    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _calls(lambda _: backward(*args, **kwargs), 1, randomness, "jacfwd")[0]

    return call


def hessian(func: Callable, argnums: ArgNums = 0) -> Callable:
    """A function that gives the matrix of second derivatives of func's result by an argument, [*result, *argument, *argument]."""
    return jacrev(jacrev(func, argnums), argnums)


# -- a dimension at a time -----------------------------------------------------------------------------------------


def vmap(func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: Optional[int] = None) -> Callable:
    """A function that calls ``func`` for each index of a dimension and stacks the results: a loop, right and no faster than one.

    ``in_dims``: the dimension of each argument, None for one that all calls share; a nested structure for nested arguments.
    ``out_dims``: where the dimension goes in the results; None for a result that is the same in all calls, which is given once. An argument
    that func gives back, changed in place or not, is itself the result.
    ``randomness``: with 'same' all calls draw the same numbers, with 'different' each draws its own, with 'error' none may draw any.
    ``chunk_size``: None, or a number above 0; calls are made one at a time, so it changes nothing else.

    ValueError for arguments without that dimension or of several sizes, for ``in_dims`` and ``out_dims`` of other structures than the arguments and
    results, and for results that are no Tensors and have a dimension in ``out_dims``. RuntimeError for numbers drawn with
    randomness 'error', and for a func that writes into an argument that all calls share."""
    _check_randomness(randomness, "vmap")
    _check_chunk_size(chunk_size, "vmap")

    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not (type(in_dims) is int or isinstance(in_dims, tuple)):
            raise ValueError(f"vmap: `in_dims` must be a number or a tuple with one for each argument, got {in_dims!r}")
        leaves, spec = tree_flatten(list(args))
        dims = _dims_like(in_dims, args, "in_dims")
        n = _common_size(leaves, dims)
        parts = [_sliced(t, d, n) for t, d in zip(leaves, dims)]
        shared = [(t, t._version) for t, d in zip(leaves, dims) if d is None and isinstance(t, Tensor)]
        results = _calls(lambda i: func(*tree_unflatten([part[i] for part in parts], spec), **kwargs), max(n, 1), randomness, "vmap")
        if any(t._version != version for t, version in shared):
            raise RuntimeError("vmap: func writes into an argument that all calls share; give it a dimension in `in_dims`, or let func clone it")
        return _together(results, out_dims, n, [(t, d, part) for t, d, part in zip(leaves, dims, parts) if d is not None])

    return call


def _check_randomness(randomness: str, what: str) -> None:
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"{what}: `randomness` must be 'error', 'different' or 'same', got {randomness!r}")


def _calls(func: Callable, n: int, randomness: str, what: str) -> List[Any]:
    """func(0) to func(n - 1), which draw random numbers, from the process's stream or a Generator, as ``randomness`` says."""
    results: List[Any] = []
    used: Dict[int, Any] = {}
    start = _C._rng_state()
    make._watching.append(used)
    try:
        for i in range(n):
            if randomness == "same":
                _C._set_rng_state(*start)
                for cell, state in used.values():
                    cell[:] = state
            results.append(func(i))
    finally:
        make._watching.pop()
    if randomness == "error" and (_C._rng_state() != start or any(cell != state for cell, state in used.values())):
        raise RuntimeError(f"{what}: func drew random numbers; pass randomness='different' for each call to draw its own, or 'same'")
    return results


def _check_chunk_size(size: Optional[int], what: str) -> None:
    if size is not None and size <= 0:
        raise ValueError(f"{what}: `chunk_size` must be None or a number above 0, got {size}")


def _common_size(leaves: List[Any], dims: List[Any]) -> int:
    """The size of the dimension that is mapped over."""
    for t, d in zip(leaves, dims):
        if d is not None and not isinstance(t, Tensor):
            raise ValueError(f"vmap: `in_dims` names the dimension {d} of an argument that is no Tensor, a {type(t).__name__}; put None in its place")
        if d is not None and not -t.dim() <= d < t.dim():
            raise ValueError(f"vmap: `in_dims` names the dimension {d} of a tensor of the shape {list(t.shape)}")
    sizes = {t.shape[d] for t, d in zip(leaves, dims) if d is not None}
    if len(sizes) != 1:
        raise ValueError(f"vmap: the dimensions that `in_dims` names must have one size, got {sorted(sizes)}")
    return sizes.pop()


def _sliced(t: Any, dim: Optional[int], n: int) -> Sequence[Any]:
    """What each call gets of an argument. Where there is nothing to cut, zeros show the shapes of the results."""
    if dim is None:
        return [t] * max(n, 1)
    return t._cut_into(None, dim, False) if n else [make.zeros_like(t.sum(dim), dtype=t.dtype)]  # func may write into these


Mapped = Tuple[Tensor, int, Sequence[Tensor]]  # an argument, the dimension that is mapped over, and what each call got of it


def _together(results: List[Any], out_dims: Any, n: int, mapped: Sequence[Mapped]) -> Any:
    """The results of all calls, each leaf stacked along its dimension of ``out_dims``."""
    flat = [tree_flatten(r) for r in results]
    alone = isinstance(results[0], Tensor) and isinstance(out_dims, tuple) and len(out_dims) == 1
    dims = _dims_like(out_dims[0] if alone else out_dims, results[0], "out_dims")
    for t, d in zip(flat[0][0], dims):
        if not isinstance(t, Tensor) and d is not None:
            raise ValueError(f"vmap: func must return Tensors, one or a structure of them, got {type(t).__name__}; its `out_dims` may be None")
    return tree_unflatten([_joined([leaves[k] for leaves, _ in flat], d, n, mapped) for k, d in enumerate(dims)], flat[0][1])


def _joined(values: List[Any], dim: Optional[int], n: int, mapped: Sequence[Mapped]) -> Any:
    """One result of all calls: stacked along ``dim``, or for None the first."""
    if dim is None:
        if isinstance(values[0], Tensor) and not all(t.equal(values[0]) for t in values[1:]):
            raise ValueError("vmap: `out_dims` has None for a result that differs between calls; give it a dimension")
        return values[0]
    for argument, d, parts in mapped:
        if n and -argument.dim() <= dim < argument.dim() and all(value is part for value, part in zip(values, parts)):
            return argument if (dim - d) % argument.dim() == 0 else argument.movedim(d, dim)
    stacked = _ops.stack(values, dim)
    return stacked if n else stacked.narrow(dim, 0, 0)


def _dims_like(dims: Any, tree: Any, name: str) -> List[Any]:
    """A dimension for each leaf, from one for all, or one for each child."""
    if dims is None or type(dims) is int:
        return [dims for _ in tree_flatten(tree)[0]]
    children = list(tree.values()) if isinstance(tree, dict) else list(tree) if isinstance(tree, (tuple, list)) else []
    given = [dims[k] for k in tree] if isinstance(dims, dict) and isinstance(tree, dict) else list(dims) if isinstance(dims, (tuple, list)) else []
    if not isinstance(tree, type(dims)) or not children or len(given) != len(children):
        raise ValueError(f"vmap: `{name}` {dims!r} does not fit a {type(tree).__name__}{f' of {len(children)} values' if children else ''}")
    return [d for one, child in zip(given, children) for d in _dims_like(one, child, name)]


if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
