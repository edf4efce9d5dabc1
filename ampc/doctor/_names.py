"""Whose a parameter is. Optimizers are given parameters without names, and models are found when a name is wanted: nothing is kept."""

from __future__ import annotations

import gc
from typing import Any, Dict, Optional, Tuple


def qualified_name(parameter: Any) -> Optional[str]:
    """``encoder.layers.2.weight``: its name from the outermost module that is alive and holds it; None where none does."""
    from ..nn import Module

    parents: Dict[int, Tuple[Any, str]] = {}
    owner, path = None, ""
    for module in (o for o in gc.get_objects() if issubclass(type(o), Module)):  # isinstance would ask the object
        for name, child in module.__dict__.get("_modules", {}).items():
            parents.setdefault(id(child), (module, name))
        for name, p in module.__dict__.get("_parameters", {}).items():
            if p is parameter:
                owner, path = module, name
    seen = set()
    while owner is not None and id(owner) not in seen:
        seen.add(id(owner))
        owner, name = parents.get(id(owner), (None, ""))
        path = f"{name}.{path}" if owner is not None else path
    return path or None
