"""Functions over nested containers of leaves, under torch.utils._pytree's names.

Nodes are lists, tuples, named tuples, dicts, OrderedDicts, defaultdicts, deques, an operator's named results, and what is registered; subclasses of
these are leaves, and so is None. ``_tree_specs`` has the shapes of trees and the registry, ``_tree_files`` their text.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, List, Optional, Tuple

from ._tree_files import (
    DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL as DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL,
)
from ._tree_files import (
    EnumEncoder as EnumEncoder,
)
from ._tree_files import (
    enum_object_hook as enum_object_hook,
)
from ._tree_files import (
    treespec_dumps,
    treespec_loads,
    treespec_pprint,
)
from ._tree_specs import (
    _COMMON,
    Context,
    LeafSpec,
    PyTree,
    TreeSpec,
    is_namedtuple,
    is_namedtuple_class,
    is_namedtuple_instance,
    is_structseq,
    is_structseq_class,
    is_structseq_instance,
    register_pytree_node,
)
from ._tree_specs import (
    BUILTIN_TYPES as BUILTIN_TYPES,
)
from ._tree_specs import (
    CONSTANT_NODES as CONSTANT_NODES,
)
from ._tree_specs import (
    NO_SERIALIZED_TYPE_NAME_FOUND as NO_SERIALIZED_TYPE_NAME_FOUND,
)
from ._tree_specs import (
    SERIALIZED_TYPE_TO_PYTHON_TYPE as SERIALIZED_TYPE_TO_PYTHON_TYPE,
)
from ._tree_specs import (
    STANDARD_DICT_TYPES as STANDARD_DICT_TYPES,
)
from ._tree_specs import (
    SUPPORTED_NODES as SUPPORTED_NODES,
)
from ._tree_specs import (
    SUPPORTED_SERIALIZED_TYPES as SUPPORTED_SERIALIZED_TYPES,
)
from ._tree_specs import (
    ConstantNode as ConstantNode,
)
from ._tree_specs import (
    GetAttrKey as GetAttrKey,
)
from ._tree_specs import (
    MappingKey as MappingKey,
)
from ._tree_specs import (
    NodeDef as NodeDef,
)
from ._tree_specs import (
    SequenceKey as SequenceKey,
)
from ._tree_specs import (
    _defaultdict_flatten as _defaultdict_flatten,
)
from ._tree_specs import (
    _defaultdict_flatten_with_keys as _defaultdict_flatten_with_keys,
)
from ._tree_specs import (
    _defaultdict_unflatten as _defaultdict_unflatten,
)
from ._tree_specs import (
    _deque_flatten as _deque_flatten,
)
from ._tree_specs import (
    _deque_flatten_with_keys as _deque_flatten_with_keys,
)
from ._tree_specs import (
    _deque_unflatten as _deque_unflatten,
)
from ._tree_specs import (
    _deregister_pytree_node as _deregister_pytree_node,
)
from ._tree_specs import (
    _dict_flatten as _dict_flatten,
)
from ._tree_specs import (
    _dict_flatten_with_keys as _dict_flatten_with_keys,
)
from ._tree_specs import (
    _dict_unflatten as _dict_unflatten,
)
from ._tree_specs import (
    _get_node_type as _get_node_type,
)
from ._tree_specs import (
    _list_flatten as _list_flatten,
)
from ._tree_specs import (
    _list_flatten_with_keys as _list_flatten_with_keys,
)
from ._tree_specs import (
    _list_unflatten as _list_unflatten,
)
from ._tree_specs import (
    _namedtuple_flatten as _namedtuple_flatten,
)
from ._tree_specs import (
    _namedtuple_flatten_with_keys as _namedtuple_flatten_with_keys,
)
from ._tree_specs import (
    _namedtuple_unflatten as _namedtuple_unflatten,
)
from ._tree_specs import (
    _ordereddict_flatten as _ordereddict_flatten,
)
from ._tree_specs import (
    _ordereddict_flatten_with_keys as _ordereddict_flatten_with_keys,
)
from ._tree_specs import (
    _ordereddict_unflatten as _ordereddict_unflatten,
)
from ._tree_specs import (
    _private_register_pytree_node as _private_register_pytree_node,
)
from ._tree_specs import (
    _register_namedtuple as _register_namedtuple,
)
from ._tree_specs import (
    _tuple_flatten as _tuple_flatten,
)
from ._tree_specs import (
    _tuple_flatten_with_keys as _tuple_flatten_with_keys,
)
from ._tree_specs import (
    _tuple_unflatten as _tuple_unflatten,
)
from ._tree_specs import (
    is_constant_class as is_constant_class,
)
from ._tree_specs import (
    register_constant as register_constant,
)
from ._tree_specs import (
    register_dataclass as register_dataclass,
)

PyTreeSpec = TreeSpec
FlattenFn = FlattenFunc = FlattenWithKeysFn = Callable[[PyTree], Tuple[List[Any], Context]]
UnflattenFn = UnflattenFunc = Callable[[Iterable[Any], Context], PyTree]
DumpableContext = Any
ToDumpableContextFn = Callable[[Context], DumpableContext]
FromDumpableContextFn = Callable[[DumpableContext], Context]
KeyEntry = Any
KeyPath = Tuple[KeyEntry, ...]
_register_pytree_node = _private_register_pytree_node
_LEAF_SPEC = LeafSpec()
_IsLeaf = Optional[Callable[[Any], bool]]

__all__ = [
    "Context", "DumpableContext", "FlattenFn", "FromDumpableContextFn", "LeafSpec", "PyTree", "PyTreeSpec", "ToDumpableContextFn", "TreeSpec",
    "UnflattenFn", "is_namedtuple", "is_namedtuple_class", "is_namedtuple_instance", "is_structseq", "is_structseq_class", "is_structseq_instance",
    "key_get", "keystr", "register_pytree_node", "tree_all", "tree_all_only", "tree_any", "tree_any_only", "tree_flatten", "tree_flatten_with_path",
    "tree_is_leaf", "tree_iter", "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_", "tree_map_only", "tree_map_only_",
    "tree_map_with_path", "tree_structure", "tree_unflatten", "treespec_dumps", "treespec_loads", "treespec_pprint",
]


def tree_is_leaf(tree: PyTree, is_leaf: _IsLeaf = None) -> bool:
    """Whether it is a leaf: of no type that is a node, or one for which ``is_leaf`` is true."""
    return is_leaf is not None and bool(is_leaf(tree)) or _get_node_type(tree) not in SUPPORTED_NODES


_is_leaf = tree_is_leaf


def tree_iter(tree: PyTree, is_leaf: _IsLeaf = None) -> Iterator[Any]:
    """The leaves from left to right, one by one."""
    if tree_is_leaf(tree, is_leaf):
        yield tree
        return
    for child in SUPPORTED_NODES[_get_node_type(tree)].flatten_fn(tree)[0]:
        yield from tree_iter(child, is_leaf)


def _flatten(tree: Any, leaves: List[Any], is_leaf: _IsLeaf) -> TreeSpec:
    kind = type(tree)
    kind = kind if kind in _COMMON else _get_node_type(tree)
    node = None if is_leaf is not None and is_leaf(tree) else SUPPORTED_NODES.get(kind)
    if node is None:
        leaves.append(tree)
        return _LEAF_SPEC
    children, context = node.flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(child, leaves, is_leaf) for child in children])


def tree_flatten(tree: PyTree, is_leaf: _IsLeaf = None) -> Tuple[List[Any], TreeSpec]:
    """The leaves from left to right, and the shape."""
    leaves: List[Any] = []
    spec = _flatten(tree, leaves, is_leaf)
    return leaves, spec


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """A tree of this shape with these leaves. ValueError for another number of them."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"tree_unflatten: argument `treespec` must be a TreeSpec, got {type(treespec).__name__}")
    return treespec.unflatten(leaves)


def _collect(tree: Any, leaves: List[Any], is_leaf: _IsLeaf) -> None:
    kind = type(tree)
    node = None if is_leaf is not None and is_leaf(tree) else SUPPORTED_NODES.get(kind if kind in _COMMON else _get_node_type(tree))
    if node is None:
        leaves.append(tree)
        return
    for child in node.flatten_fn(tree)[0]:
        _collect(child, leaves, is_leaf)


def tree_leaves(tree: PyTree, is_leaf: _IsLeaf = None) -> List[Any]:
    """The leaves from left to right."""
    leaves: List[Any] = []
    _collect(tree, leaves, is_leaf)
    return leaves


def tree_structure(tree: PyTree, is_leaf: _IsLeaf = None) -> TreeSpec:
    """The shape."""
    return tree_flatten(tree, is_leaf)[1]


def _columns(tree: PyTree, rests: Tuple[PyTree, ...], is_leaf: _IsLeaf) -> Tuple[List[List[Any]], TreeSpec]:
    leaves, spec = tree_flatten(tree, is_leaf)
    return [leaves, *(spec.flatten_up_to(r) for r in rests)], spec


def tree_map(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: _IsLeaf = None) -> PyTree:
    """The same tree of ``func(leaf, what the others have at the same position...)``. ValueError where the others have another shape."""
    columns, spec = _columns(tree, rests, is_leaf)
    return spec.unflatten(map(func, *columns))


def tree_map_(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: _IsLeaf = None) -> PyTree:
    """``func`` of each leaf for what it does; the tree itself."""
    for each in zip(*_columns(tree, rests, is_leaf)[0]):
        func(*each)
    return tree


def _predicate(kinds: Any) -> Callable[[Any], bool]:
    classes: Any = (type, tuple, getattr(types, "UnionType", type))
    if isinstance(kinds, classes):
        return lambda x: isinstance(x, kinds)
    if callable(kinds):
        return kinds
    raise TypeError(f"map_only: expected a class, a tuple of classes or a predicate, got {kinds!r}")


def map_only(type_or_types_or_pred: Any, /) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Makes a function one that returns what is of no such type, or does not satisfy the predicate, as it is."""
    wanted = _predicate(type_or_types_or_pred)

    def wrapper(func: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(func)
        def wrapped(x: Any) -> Any:
            return func(x) if wanted(x) else x

        return wrapped

    return wrapper


def tree_map_only(type_or_types_or_pred: Any, /, func: Callable[[Any], Any], tree: PyTree, is_leaf: _IsLeaf = None) -> PyTree:
    """As tree_map for leaves of some types, or that satisfy a predicate; others stay."""
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(type_or_types_or_pred: Any, /, func: Callable[[Any], Any], tree: PyTree, is_leaf: _IsLeaf = None) -> PyTree:
    """As tree_map_ for leaves of some types, or that satisfy a predicate."""
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: _IsLeaf = None) -> bool:
    """Whether ``pred`` holds for every leaf."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: _IsLeaf = None) -> bool:
    """Whether ``pred`` holds for some leaf."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(type_or_types: Any, /, pred: Callable[[Any], bool], tree: PyTree, is_leaf: _IsLeaf = None) -> bool:
    """Whether ``pred`` holds for every leaf of these types."""
    return all(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, type_or_types))


def tree_any_only(type_or_types: Any, /, pred: Callable[[Any], bool], tree: PyTree, is_leaf: _IsLeaf = None) -> bool:
    """Whether ``pred`` holds for some leaf of these types."""
    return any(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, type_or_types))


def arg_tree_leaves(*args: PyTree, **kwargs: PyTree) -> List[Any]:
    """The leaves of all arguments."""
    return [leaf for tree in (*args, *kwargs.values()) for leaf in tree_iter(tree)]


# -- paths -------------------------------------------------------------------------------------------------------------


def _generate_key_paths(key_path: KeyPath, tree: PyTree, is_leaf: _IsLeaf = None) -> Iterator[Tuple[KeyPath, Any]]:
    if tree_is_leaf(tree, is_leaf):
        yield key_path, tree
        return
    kind = _get_node_type(tree)
    with_keys = SUPPORTED_NODES[kind].flatten_with_keys_fn
    if with_keys is None:
        raise ValueError(f"tree_flatten_with_path: {kind.__name__} was registered without the names of its children; give register_pytree_node "
                         "flatten_with_keys_fn")
    for key, child in with_keys(tree)[0]:
        yield from _generate_key_paths((*key_path, key), child, is_leaf)


def tree_leaves_with_path(tree: PyTree, is_leaf: _IsLeaf = None) -> List[Tuple[KeyPath, Any]]:
    """(path, leaf) of each leaf; a path is a tuple of keys."""
    return list(_generate_key_paths((), tree, is_leaf))


def tree_flatten_with_path(tree: PyTree, is_leaf: _IsLeaf = None) -> Tuple[List[Tuple[KeyPath, Any]], TreeSpec]:
    """(path, leaf) of each leaf, and the shape. ValueError for a registered type without ``flatten_with_keys_fn``."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: _IsLeaf = None) -> PyTree:
    """As tree_map, of ``func(path, leaf, ...)``."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    paths, leaves = [p for p, _ in pairs], [x for _, x in pairs]
    return spec.unflatten(map(func, paths, leaves, *(spec.flatten_up_to(r) for r in rests)))


def keystr(kp: KeyPath) -> str:
    """A path as text: ``['a'][0].name``."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: KeyPath) -> Any:
    """What lies at the path."""
    return functools.reduce(lambda x, key: key.get(x), kp, obj)


def _broadcast_to_and_flatten(tree: PyTree, treespec: TreeSpec, is_leaf: _IsLeaf = None) -> Optional[List[Any]]:
    """A leaf for each leaf of the shape, of which ``tree`` has the upper part; None where it does not fit."""
    full = treespec.unflatten([0] * treespec.num_leaves)
    found: List[Any] = []
    try:
        tree_map_(lambda x, below: found.extend([x] * tree_structure(below, is_leaf).num_leaves), tree, full, is_leaf=is_leaf)
    except ValueError:
        return None
    return found
