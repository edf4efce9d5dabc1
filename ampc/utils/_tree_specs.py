"""The shapes of trees (TreeSpec) and the types whose objects are nodes, for ``_pytree``."""

from __future__ import annotations

import dataclasses
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple, Type

from .._C import Tensor
from .._messages.callers import warn
from .._tensor.device import Size

PyTree = Any
Context = Any
_Flat = Tuple[List[Any], Context]
NO_SERIALIZED_TYPE_NAME_FOUND = "NO_SERIALIZED_TYPE_NAME_FOUND"


class NodeDef(NamedTuple):
    """How objects of a type are taken apart and put together."""

    type: Any
    flatten_fn: Callable[[Any], _Flat]
    unflatten_fn: Callable[[Iterable[Any], Context], Any]
    flatten_with_keys_fn: Optional[Callable[[Any], _Flat]]


class _SerializeNodeDef(NamedTuple):
    typ: Any
    serialized_type_name: str
    to_dumpable_context: Optional[Callable[[Context], Any]]
    from_dumpable_context: Optional[Callable[[Any], Context]]


SUPPORTED_NODES: Dict[Any, NodeDef] = {}
SUPPORTED_SERIALIZED_TYPES: Dict[Any, _SerializeNodeDef] = {}
SERIALIZED_TYPE_TO_PYTHON_TYPE: Dict[str, Any] = {}
CONSTANT_NODES: Set[Any] = set()


# -- keys of paths -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class MappingKey:
    """Where a child lies: under this key."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """That child."""
        return mapping[self.key]


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """Where a child lies: at this position."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """That child."""
        return sequence[self.idx]


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """Where a child lies: in this attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """That child."""
        return getattr(obj, self.name)


# -- types of nodes ----------------------------------------------------------------------------------------------------


def is_namedtuple_class(cls: type) -> bool:
    """Whether it is a class of named tuples."""
    if not (isinstance(cls, type) and issubclass(cls, tuple)):
        return False
    names, methods = getattr(cls, "_fields", None), (getattr(cls, "_make", None), getattr(cls, "_asdict", None))
    return isinstance(names, tuple) and {str}.issuperset(map(type, names)) and all(map(callable, methods))


def is_namedtuple_instance(obj: object) -> bool:
    """Whether it is a named tuple."""
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj: Any) -> bool:
    """Whether it is a named tuple, or a class of them."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_class(cls: type) -> bool:
    """Whether it is a class of structure sequences, such as time.struct_time."""
    return (isinstance(cls, type) and cls.__bases__ == (tuple,)
            and all(isinstance(cls.__dict__.get(name), int) for name in ("n_sequence_fields", "n_fields", "n_unnamed_fields")))


def is_structseq_instance(obj: object) -> bool:
    """Whether it is a structure sequence."""
    return is_structseq_class(type(obj))


def is_structseq(obj: Any) -> bool:
    """Whether it is a structure sequence, or a class of them."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def is_constant_class(cls: type) -> bool:
    """Whether register_constant was given it."""
    return cls in CONSTANT_NODES


_COMMON = frozenset({list, tuple, dict, OrderedDict, int, float, str, bool, type(None), Tensor})  # no named tuples, as is quickly told


def _get_node_type(tree: Any) -> Any:
    """The key in SUPPORTED_NODES: the type, and namedtuple for all named tuples."""
    kind = type(tree)
    if kind in _COMMON:
        return kind
    if is_namedtuple_class(kind):
        return namedtuple
    if kind not in SUPPORTED_NODES and kind.__module__ == "ampc.return_types" and is_structseq_class(kind):
        _private_register_pytree_node(kind, _tuple_flatten, lambda values, _: kind(values), flatten_with_keys_fn=_tuple_flatten_with_keys)
    return kind


def _list_flatten(d: List[Any]) -> _Flat:
    return d, None


def _tuple_flatten(d: Tuple[Any, ...]) -> _Flat:
    return list(d), None


def _dict_flatten(d: Dict[Any, Any]) -> _Flat:
    return list(d.values()), list(d)


def _namedtuple_flatten(d: Any) -> _Flat:
    return list(d), type(d)


def _defaultdict_flatten(d: defaultdict) -> _Flat:
    return list(d.values()), [d.default_factory, list(d)]


def _deque_flatten(d: deque) -> _Flat:
    return list(d), d.maxlen


def _list_unflatten(values: Iterable[Any], context: Context) -> List[Any]:
    return list(values)


def _tuple_unflatten(values: Iterable[Any], context: Context) -> Tuple[Any, ...]:
    return tuple(values)


def _dict_unflatten(values: Iterable[Any], context: Context) -> Dict[Any, Any]:
    return dict(zip(context, values))


def _namedtuple_unflatten(values: Iterable[Any], context: Context) -> Any:
    return context(*values)


def _ordereddict_unflatten(values: Iterable[Any], context: Context) -> OrderedDict:
    return OrderedDict(zip(context, values))


def _defaultdict_unflatten(values: Iterable[Any], context: Context) -> defaultdict:
    return defaultdict(context[0], zip(context[1], values))


def _deque_unflatten(values: Iterable[Any], context: Context) -> deque:
    return deque(values, maxlen=context)


def _tuple_flatten_with_keys(d: Any) -> _Flat:
    return [(SequenceKey(i), v) for i, v in enumerate(d)], None


def _deque_flatten_with_keys(d: deque) -> _Flat:
    return [(SequenceKey(i), v) for i, v in enumerate(d)], d.maxlen


def _namedtuple_flatten_with_keys(d: Any) -> _Flat:
    return [(GetAttrKey(field), v) for field, v in zip(d._fields, d)], type(d)


def _dict_flatten_with_keys(d: Dict[Any, Any]) -> _Flat:
    return [(MappingKey(k), v) for k, v in d.items()], list(d)


def _defaultdict_flatten_with_keys(d: defaultdict) -> _Flat:
    return [(MappingKey(k), v) for k, v in d.items()], [d.default_factory, list(d)]


_list_flatten_with_keys = _tuple_flatten_with_keys
_ordereddict_flatten, _ordereddict_flatten_with_keys = _dict_flatten, _dict_flatten_with_keys


# -- shapes of trees ---------------------------------------------------------------------------------------------------


class TreeSpec:
    """The shape of a tree: the ``type`` of its root (None for a leaf), the ``context`` that rebuilds it, and its children's shapes."""

    def __init__(self, type: Any, context: Context, children_specs: List[TreeSpec]) -> None:
        self.type, self._context, self._children = type, context, children_specs
        self.num_children = len(children_specs)
        self.num_nodes: int = 1
        self.num_leaves: int = 1 if type is None else 0
        for child in children_specs:
            self.num_nodes += child.num_nodes
            self.num_leaves += child.num_leaves

    def __repr__(self, indent: int = 0) -> str:
        between = ",\n" + " " * (indent + 2)
        return f"TreeSpec({self.type.__name__}, {self._context}, [{between.join(c.__repr__(indent + 2) for c in self._children)}])"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return self is other or (str(self.type), self._context, self._children) == (str(other.type), other._context, other._children)

    def __hash__(self) -> int:
        context = self._context
        if self.type is defaultdict:
            context = (context[0], tuple(context[1]))
        elif isinstance(context, list):
            context = tuple(context)
        return hash((self.type, context, tuple(self._children)))

    @property
    def context(self) -> Context:
        """What rebuilds the root from its children: a dict's keys, a named tuple's class."""
        return self._context

    @property
    def children_specs(self) -> List[TreeSpec]:
        """The children's shapes."""
        return self._children

    def is_leaf(self) -> bool:
        """Whether it is the shape of one leaf."""
        return self.type is None

    def children(self) -> List[TreeSpec]:
        """The children's shapes, in a list of their own."""
        return list(self._children)

    def child(self, index: int) -> TreeSpec:
        """The shape of one child."""
        return self._children[index]

    def unflatten(self, leaves: Iterable[Any]) -> PyTree:
        """A tree of this shape with these leaves. ValueError for another number of them."""
        values = list(leaves)
        if len(values) != self.num_leaves:
            raise ValueError(f"TreeSpec.unflatten: expected {self.num_leaves} leaves, got {len(values)}, for {self}")
        return self._build(iter(values))

    def _build(self, leaves: Any) -> PyTree:
        if self.type is None:
            return next(leaves)
        return SUPPORTED_NODES[self.type].unflatten_fn([c._build(leaves) for c in self._children], self._context)

    def flatten_up_to(self, tree: PyTree) -> List[PyTree]:
        """What the tree, which is of this shape above, has at each leaf. ValueError where it is of another."""
        if self.type is None:
            return [tree]
        return [found for child, spec in zip(_matching_children(self, tree), self._children) for found in spec.flatten_up_to(tree=child)]


class LeafSpec(TreeSpec):
    """The shape of one leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])

    def __repr__(self, indent: int = 0) -> str:
        return "*"


def _matching_children(spec: TreeSpec, node: Any) -> List[Any]:
    """The node's children in the order of the shape's. Kinds of dicts match each other."""
    kind = _get_node_type(node)
    dicts = spec.type in STANDARD_DICT_TYPES and kind in STANDARD_DICT_TYPES
    if kind != spec.type and not dicts:
        raise ValueError(f"tree_map: the trees differ: expected a {spec.type.__name__}, got a {kind.__name__}")
    children, context = SUPPORTED_NODES[kind].flatten_fn(node)
    if len(children) != spec.num_children:
        raise ValueError(f"tree_map: the trees differ: expected a {kind.__name__} of {spec.num_children}, got one of {len(children)}")
    if dicts:
        keys = spec._context[1] if spec.type is defaultdict else spec._context
        missing = [k for k in keys if k not in node]
        if missing:
            raise ValueError(f"tree_map: the trees differ: a dict lacks {missing}, and has {[k for k in node if k not in keys]} instead")
        return [node[k] for k in keys]
    if kind is not deque and context != spec._context:
        raise ValueError(f"tree_map: the trees differ: expected a {kind.__name__} with {spec._context!r}, got one with {context!r}")
    return children


# -- registering -------------------------------------------------------------------------------------------------------


def _private_register_pytree_node(cls: Any, flatten_fn: Callable, unflatten_fn: Callable, *, serialized_type_name: Optional[str] = None,
                                  to_dumpable_context: Optional[Callable] = None, from_dumpable_context: Optional[Callable] = None,
                                  flatten_with_keys_fn: Optional[Callable] = None) -> None:
    """As register_pytree_node; a type that is registered already is registered anew, with a warning."""
    if (to_dumpable_context is None) != (from_dumpable_context is None):
        raise ValueError(f"register_pytree_node: to_dumpable_context and from_dumpable_context come together; {cls.__name__} has only one")
    if cls in SUPPORTED_NODES:
        warn(f"{cls.__name__} was a node of trees before; what was registered for it is replaced")
    name = NO_SERIALIZED_TYPE_NAME_FOUND if serialized_type_name is None else serialized_type_name
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    SUPPORTED_SERIALIZED_TYPES[cls] = _SerializeNodeDef(cls, name, to_dumpable_context, from_dumpable_context)
    SERIALIZED_TYPE_TO_PYTHON_TYPE[name] = cls


def register_pytree_node(cls: Type[Any], flatten_fn: Callable, unflatten_fn: Callable, *, serialized_type_name: Optional[str] = None,
                         to_dumpable_context: Optional[Callable] = None, from_dumpable_context: Optional[Callable] = None,
                         flatten_with_keys_fn: Optional[Callable] = None) -> None:
    """Makes objects of a class nodes.

    Args:
        flatten_fn: ``flatten_fn(x)`` gives (children, context).
        unflatten_fn: ``unflatten_fn(children, context)`` gives x again.
        serialized_type_name: its name in the text of treespec_dumps.
        to_dumpable_context, from_dumpable_context: the context as something that JSON holds, and back.
        flatten_with_keys_fn: as ``flatten_fn`` with (key, child) for each child, for paths.

    ValueError for a class that is registered already."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"register_pytree_node: {cls.__name__} is already registered")
    _private_register_pytree_node(cls, flatten_fn, unflatten_fn, serialized_type_name=serialized_type_name, to_dumpable_context=to_dumpable_context,
                                  from_dumpable_context=from_dumpable_context, flatten_with_keys_fn=flatten_with_keys_fn)


def _deregister_pytree_node(cls: Any) -> None:
    """Objects of the class are leaves again."""
    del SUPPORTED_NODES[cls]
    name = SUPPORTED_SERIALIZED_TYPES.pop(cls).serialized_type_name
    SERIALIZED_TYPE_TO_PYTHON_TYPE.pop(name, None)
    CONSTANT_NODES.discard(cls)


def _init_fields(cls: type, field_names: Optional[List[str]], dropped: List[str]) -> List[str]:
    if not dataclasses.is_dataclass(cls):
        if field_names is None:
            raise ValueError(f"register_dataclass: {cls.__name__} is no dataclass; give `field_names`, the arguments of its __init__")
        return field_names
    there = [f.name for f in dataclasses.fields(cls) if f.init]
    if field_names is None:
        return there
    wanted = set(there) - set(dropped)
    if wanted != set(field_names):
        raise ValueError(f"register_dataclass: `field_names` must be {sorted(wanted)}, got {sorted(field_names)}; name what is left out in "
                         "`drop_field_names`")
    return field_names


def register_dataclass(cls: Type[Any], *, field_names: Optional[List[str]] = None, drop_field_names: Optional[List[str]] = None,
                       serialized_type_name: Optional[str] = None) -> None:
    """Makes objects of a dataclass nodes, whose children are its fields that are not None; ``drop_field_names`` have their defaults again."""
    names = _init_fields(cls, field_names, drop_field_names or [])

    def flatten(x: Any) -> _Flat:
        there = [n for n in names if getattr(x, n) is not None]
        return [getattr(x, n) for n in there], [there, [n for n in names if n not in there]]

    def unflatten(values: Iterable[Any], context: Context) -> Any:
        return cls(**dict(zip(context[0], values)), **dict.fromkeys(context[1]))

    def with_keys(x: Any) -> _Flat:
        children, context = flatten(x)
        return [(GetAttrKey(n), v) for n, v in zip(context[0], children)], context[0]

    _private_register_pytree_node(cls, flatten, unflatten, serialized_type_name=serialized_type_name, flatten_with_keys_fn=with_keys)


@dataclasses.dataclass(frozen=True)
class ConstantNode:
    """The context of an object without leaves: itself."""

    value: Any


def register_constant(cls: Type[Any]) -> None:
    """Makes objects of a class nodes without leaves. TypeError for one without an ``__eq__`` and a ``__hash__`` of its own."""
    if cls.__eq__ is object.__eq__:
        raise TypeError(f"register_constant: {cls.__name__} has no __eq__ of its own; constants are compared")
    if cls.__hash__ is None:
        raise TypeError(f"register_constant: {cls.__name__} has no __hash__; constants are looked up")
    _private_register_pytree_node(cls, lambda x: ([], ConstantNode(x)), lambda _, context: context.value,
                                  flatten_with_keys_fn=lambda x: ([], ConstantNode(x)))
    CONSTANT_NODES.add(cls)


def _named_serialize(context: Any) -> str:
    known = SUPPORTED_SERIALIZED_TYPES.get(context)
    if known is None or known.serialized_type_name == NO_SERIALIZED_TYPE_NAME_FOUND:
        raise NotImplementedError(f"treespec_dumps: the named tuple {context.__name__} has no name for texts; give it one with _register_namedtuple")
    return known.serialized_type_name


def _named_deserialize(name: str) -> Any:
    if name not in SERIALIZED_TYPE_TO_PYTHON_TYPE:
        raise NotImplementedError(f"treespec_loads: no named tuple is registered as {name!r}; give it that name with _register_namedtuple")
    return SERIALIZED_TYPE_TO_PYTHON_TYPE[name]


def _register_namedtuple(cls: Type[Any], *, serialized_type_name: str) -> None:
    """Gives a class of named tuples a name in the text of treespec_dumps."""
    _private_register_pytree_node(cls, _namedtuple_flatten, _namedtuple_unflatten, serialized_type_name=serialized_type_name,
                                  to_dumpable_context=_named_serialize, from_dumpable_context=_named_deserialize,
                                  flatten_with_keys_fn=_namedtuple_flatten_with_keys)


def _defaultdict_serialize(context: Context) -> Dict[str, Any]:
    return {"default_factory_module": context[0].__module__, "default_factory_name": context[0].__qualname__, "dict_context": context[1]}


def found_in_module(module: str, path: str) -> Any:
    """What a module that is loaded has by that name: reading a text imports nothing. ValueError for what is not there."""
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise ValueError(f"treespec_loads: {module}.{path} is not there; import {module} first")
    return found


def _defaultdict_deserialize(dumped: Any) -> List[Any]:
    return [found_in_module(dumped["default_factory_module"], dumped["default_factory_name"]), dumped["dict_context"]]


for _kind, _name, _functions in (
    (tuple, "builtins.tuple", (_tuple_flatten, _tuple_unflatten, _tuple_flatten_with_keys)),
    (list, "builtins.list", (_list_flatten, _list_unflatten, _list_flatten_with_keys)),
    (dict, "builtins.dict", (_dict_flatten, _dict_unflatten, _dict_flatten_with_keys)),
    (OrderedDict, "collections.OrderedDict", (_dict_flatten, _ordereddict_unflatten, _dict_flatten_with_keys)),
    (deque, "collections.deque", (_deque_flatten, _deque_unflatten, _deque_flatten_with_keys)),
):
    _private_register_pytree_node(_kind, _functions[0], _functions[1], serialized_type_name=_name, flatten_with_keys_fn=_functions[2])
_private_register_pytree_node(namedtuple, _namedtuple_flatten, _namedtuple_unflatten, serialized_type_name="collections.namedtuple",
                              to_dumpable_context=_named_serialize, from_dumpable_context=_named_deserialize,
                              flatten_with_keys_fn=_namedtuple_flatten_with_keys)
_private_register_pytree_node(defaultdict, _defaultdict_flatten, _defaultdict_unflatten, serialized_type_name="collections.defaultdict",
                              to_dumpable_context=_defaultdict_serialize, from_dumpable_context=_defaultdict_deserialize,
                              flatten_with_keys_fn=_defaultdict_flatten_with_keys)
_private_register_pytree_node(Size, _tuple_flatten, _tuple_unflatten, serialized_type_name="torch.Size",
                              flatten_with_keys_fn=_tuple_flatten_with_keys)
STANDARD_DICT_TYPES = frozenset({dict, OrderedDict, defaultdict})
BUILTIN_TYPES = frozenset({tuple, list, dict, namedtuple, OrderedDict, defaultdict, deque})
