"""The names that models give to their modules and parameters. An optimizer gets parameters without names, so a name is searched in all
existing models."""

from __future__ import annotations

import gc
from functools import cached_property
from typing import Any, Dict, List, Optional, Tuple

_module_classes: Tuple[type, ...] = ()


def register_module_class(kind: type) -> None:
    """Registers a class whose objects ``Names`` treats as modules. `nn` registers its own."""
    global _module_classes
    _module_classes = (*_module_classes, kind)


class Names:
    """The existing modules and their names. It searches all objects of the process once, at the first question, so use one ``Names`` for
    several names."""

    @cached_property
    def modules(self) -> List[Any]:
        """All existing modules."""
        return [o for o in gc.get_objects() if issubclass(type(o), _module_classes)]  # isinstance would ask objects for their class

    @cached_property
    def _holders(self) -> Dict[int, Tuple[Any, str]]:
        """By the id of a module or parameter: the module that holds it, and its name there."""
        holders: Dict[int, Tuple[Any, str]] = {}
        for module in self.modules:
            for kind in ("_modules", "_parameters"):
                for name, held in module.__dict__.get(kind, {}).items():
                    holders.setdefault(id(held), (module, name))
        return holders

    def of(self, held: Any) -> Optional[str]:
        """``encoder.layers.2.weight``: the name of a parameter or module from the outermost module that holds it; None where none does."""
        path, seen = "", set()
        while id(held) in self._holders and id(held) not in seen:
            seen.add(id(held))
            held, name = self._holders[id(held)]
            path = f"{name}.{path}" if path else name
        return path or None

    def of_buffer(self, t: Any) -> Optional[str]:
        """The name of the buffer whose memory ``t`` is; None where it is none's."""
        for module in self.modules:
            for name, buffer in module.__dict__.get("_buffers", {}).items():
                if buffer is not None and buffer.numel() and buffer.data_ptr() == t.data_ptr():
                    path = self.of(module)
                    return f"{path}.{name}" if path else name
        return None

    def of_parameter(self, optimizer: Any, group: int, i: int) -> str:
        """A parameter's name for messages: from the optimizer, or else from a model, or else its position."""
        own = optimizer.param_groups[group].get("param_names")
        return str(own[i]) if own else self.of(optimizer.param_groups[group]["params"][i]) or f"{i} (group {group})"
