"""The shapes of trees as text, in torch's format, for ``_pytree``."""

from __future__ import annotations

import enum
import json
from typing import Any, Dict, Optional

from ._tree_specs import (
    NO_SERIALIZED_TYPE_NAME_FOUND,
    SERIALIZED_TYPE_TO_PYTHON_TYPE,
    SUPPORTED_SERIALIZED_TYPES,
    LeafSpec,
    TreeSpec,
    found_in_module,
)

DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL = 1


class EnumEncoder(json.JSONEncoder):
    """Writes members of enumerations, too."""

    def default(self, obj: Any) -> Any:
        """What JSON holds in the object's place."""
        if isinstance(obj, enum.Enum):
            return {"__enum__": True, "fqn": f"{type(obj).__module__}:{type(obj).__qualname__}", "name": obj.name}
        return super().default(obj)


def enum_object_hook(obj: Dict[str, Any]) -> Any:
    """Reads them again."""
    if "__enum__" not in obj:
        return obj
    found = found_in_module(*obj["fqn"].split(":", 1))
    if not (isinstance(found, type) and issubclass(found, enum.Enum)):
        raise TypeError(f"treespec_loads: {obj['fqn']} is no enumeration")
    return found[obj["name"]]


def _to_json(spec: TreeSpec) -> Dict[str, Any]:
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    if spec.type not in SUPPORTED_SERIALIZED_TYPES:
        raise NotImplementedError(f"treespec_dumps: the type {spec.type.__name__} is not registered; use register_pytree_node")
    known = SUPPORTED_SERIALIZED_TYPES[spec.type]
    if known.serialized_type_name == NO_SERIALIZED_TYPE_NAME_FOUND:
        raise NotImplementedError(f"treespec_dumps: {spec.type.__name__} was registered without a name for texts; give register_pytree_node "
                                  "serialized_type_name")
    if known.to_dumpable_context is not None:
        context = known.to_dumpable_context(spec.context)
    else:
        try:
            context = json.dumps(spec.context, cls=EnumEncoder)
        except TypeError as error:
            raise TypeError(f"treespec_dumps: JSON does not hold the context of {known.serialized_type_name}; give register_pytree_node "
                            "to_dumpable_context and from_dumpable_context") from error
    return {"type": known.serialized_type_name, "context": context, "children_spec": [_to_json(c) for c in spec.children()]}


def _from_json(data: Dict[str, Any]) -> TreeSpec:
    if data["type"] is None:
        return LeafSpec()
    if data["type"] not in SERIALIZED_TYPE_TO_PYTHON_TYPE:
        raise NotImplementedError(f"treespec_loads: no type is registered as {data['type']!r}; register it first")
    kind = SERIALIZED_TYPE_TO_PYTHON_TYPE[data["type"]]
    read = SUPPORTED_SERIALIZED_TYPES[kind].from_dumpable_context
    context = json.loads(data["context"], object_hook=enum_object_hook) if read is None else read(data["context"])
    return TreeSpec(kind, context, [_from_json(c) for c in data["children_spec"]])


def _check_protocol(protocol: Any) -> None:
    if protocol != DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL:
        raise ValueError(f"treespec: the protocol must be {DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL}, got {protocol!r}")


def treespec_dumps(treespec: TreeSpec, protocol: Optional[int] = None) -> str:
    """The shape as text. NotImplementedError for registered types that have no name there, TypeError for what is no shape."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"treespec_dumps: argument `treespec` must be a TreeSpec, got {type(treespec).__name__}")
    protocol = DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL if protocol is None else protocol
    _check_protocol(protocol)
    return json.dumps((protocol, _to_json(treespec)), cls=EnumEncoder)


def treespec_loads(serialized: str) -> TreeSpec:
    """The shape that treespec_dumps wrote, here or in torch."""
    protocol, data = json.loads(serialized)
    _check_protocol(protocol)
    return _from_json(data)


class _Asterisk:
    def __repr__(self) -> str:
        return "*"


def treespec_pprint(treespec: TreeSpec) -> str:
    """A tree of that shape, with * for each leaf."""
    return repr(treespec.unflatten([_Asterisk()] * treespec.num_leaves))
