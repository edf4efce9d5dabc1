"""Whose a parameter is. Optimizers are given parameters without names, and models are found when a name is wanted: nothing is kept."""

from __future__ import annotations

import gc
from typing import Any, Dict, List, Optional, Tuple


def qualified_name(parameter: Any) -> Optional[str]:
    """``encoder.layers.2.weight``: its name from the outermost module that is alive and holds it; None where none does."""
    for module in _modules():
        for name, p in module.__dict__.get("_parameters", {}).items():
            if p is parameter:
                path = module_name(module)
                return f"{path}.{name}" if path else name
    return None


def module_name(module: Any) -> str:
    """``encoder.layers.2``: its name from the outermost module that is alive and holds it; '' for one that none holds."""
    parents: Dict[int, Tuple[Any, str]] = {}
    for holder in _modules():
        for name, child in holder.__dict__.get("_modules", {}).items():
            parents.setdefault(id(child), (holder, name))
    path, seen = "", set()
    while id(module) in parents and id(module) not in seen:
        seen.add(id(module))
        module, name = parents[id(module)]
        path = f"{name}.{path}" if path else name
    return path


def _modules() -> List[Any]:
    """All that are alive. (isinstance would ask objects for their class.)"""
    from ..nn import Module

    return [o for o in gc.get_objects() if issubclass(type(o), Module)]
