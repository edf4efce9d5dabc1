"""Functions over nested containers (lists, tuples, named tuples, dicts) of leaves, under torch.utils._pytree's names."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple, Type

PyTree = Any


class _Kind(NamedTuple):
    flatten: Callable[[Any], Tuple[List[Any], Any]]
    unflatten: Callable[[Iterable[Any], Any], Any]


class TreeSpec(NamedTuple):
    """The shape of a tree: the type of its root (None for a leaf), what rebuilds it, and its children's shapes."""

    type: Any
    context: Any
    children_specs: List[Any]

    @property
    def num_leaves(self) -> int:
        return 1 if self.type is None else sum(c.num_leaves for c in self.children_specs)

    def is_leaf(self) -> bool:
        return self.type is None


def _of_dict(kind: Callable[..., Any]) -> _Kind:
    return _Kind(lambda d: (list(d.values()), list(d)), lambda values, keys: kind(zip(keys, values)))


_KINDS: Dict[type, _Kind] = {
    list: _Kind(lambda x: (list(x), None), lambda values, _: list(values)),
    tuple: _Kind(lambda x: (list(x), None), lambda values, _: tuple(values)),
    dict: _of_dict(dict),
    OrderedDict: _of_dict(OrderedDict),
    defaultdict: _Kind(lambda d: (list(d.values()), (d.default_factory, list(d))), lambda values, c: defaultdict(c[0], zip(c[1], values))),
}
_named = _Kind(lambda x: (list(x), type(x)), lambda values, kind: kind(*values))


def _kind_of(x: Any) -> Optional[_Kind]:
    if isinstance(x, tuple) and hasattr(type(x), "_fields"):
        return _named
    return _KINDS.get(type(x))


def _dict_flatten(d: Dict[Any, Any]) -> Tuple[List[Any], Any]:
    return list(d.values()), list(d)


def _dict_unflatten(values: Iterable[Any], context: Any) -> Dict[Any, Any]:
    return dict(zip(context, values))


class MappingKey(NamedTuple):
    """Where a child lies: under this key."""

    key: Any


def _dict_flatten_with_keys(d: Dict[Any, Any]) -> Tuple[List[Tuple[MappingKey, Any]], Any]:
    return [(MappingKey(k), v) for k, v in d.items()], list(d)


def register_pytree_node(cls: Type[Any], flatten_fn: Callable, unflatten_fn: Callable, **more: Any) -> None:
    """Makes objects of a class nodes: ``flatten_fn(x)`` gives (children, context), ``unflatten_fn(children, context)`` x again."""
    _KINDS[cls] = _Kind(lambda x: (list(flatten_fn(x)[0]), flatten_fn(x)[1]), lambda values, context: unflatten_fn(list(values), context))


_register_pytree_node = register_pytree_node
Context = Any


def tree_flatten(tree: PyTree, is_leaf: Optional[Callable[[Any], bool]] = None) -> Tuple[List[Any], TreeSpec]:
    """The leaves from left to right, and the shape."""
    kind = None if is_leaf is not None and is_leaf(tree) else _kind_of(tree)
    if kind is None:
        return [tree], TreeSpec(None, None, [])
    children, context = kind.flatten(tree)
    leaves: List[Any] = []
    specs = []
    for child in children:
        more, spec = tree_flatten(child, is_leaf)
        leaves += more
        specs.append(spec)
    return leaves, TreeSpec(type(tree), context, specs)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """A tree of this shape with these leaves. ValueError for another number of them."""
    values = list(leaves)
    if len(values) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten: the shape has {treespec.num_leaves} leaves, {len(values)} were given")
    return _build(iter(values), treespec)


def _build(leaves: Any, spec: TreeSpec) -> Any:
    if spec.type is None:
        return next(leaves)
    children = [_build(leaves, c) for c in spec.children_specs]
    kind = _named if hasattr(spec.type, "_fields") and issubclass(spec.type, tuple) else _KINDS[spec.type]
    return kind.unflatten(children, spec.context)


def tree_leaves(tree: PyTree, is_leaf: Optional[Callable[[Any], bool]] = None) -> List[Any]:
    """The leaves from left to right."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: PyTree, is_leaf: Optional[Callable[[Any], bool]] = None) -> TreeSpec:
    """The shape."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Optional[Callable[[Any], bool]] = None) -> PyTree:
    """The same tree of ``func(leaf, leaves of the others at the same position...)``."""
    leaves, spec = tree_flatten(tree, is_leaf)
    return tree_unflatten([func(*each) for each in zip(leaves, *(tree_flatten(r, is_leaf)[0] for r in rests))], spec)


def tree_map_(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Optional[Callable[[Any], bool]] = None) -> PyTree:
    """``func`` of each leaf for what it does; the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(kinds: Any, func: Callable[[Any], Any], tree: PyTree, is_leaf: Optional[Callable[[Any], bool]] = None) -> PyTree:
    """As tree_map for leaves of some types; others stay. ``kinds`` may be a predicate, too."""
    wanted = kinds if callable(kinds) and not isinstance(kinds, type) else lambda x: isinstance(x, kinds)
    return tree_map(lambda x: func(x) if wanted(x) else x, tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: Optional[Callable[[Any], bool]] = None) -> bool:
    """Whether ``pred`` holds for every leaf."""
    return all(pred(x) for x in tree_leaves(tree, is_leaf))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: Optional[Callable[[Any], bool]] = None) -> bool:
    """Whether ``pred`` holds for some leaf."""
    return any(pred(x) for x in tree_leaves(tree, is_leaf))
