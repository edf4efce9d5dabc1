"""Regions of a script: what stands within `with` blocks and decorated functions of a kind."""

from __future__ import annotations

import ast
from typing import Callable, List, Optional, Set

from .reader import Script, is_off, name_of


def contexts_of(node: ast.AST) -> List[ast.expr]:
    """The context managers of a `with`, or the decorators of a function; none for other nodes."""
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return [i.context_expr for i in node.items]
    return list(node.decorator_list) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else []


def within(script: Script, begins: Callable[[ast.AST], Optional[bool]]) -> Set[int]:
    """The ids of nodes within regions. ``begins`` says whether a node begins one (True), ends the one around (False), or does neither (None)."""
    found: Set[int] = set()
    for node in ast.walk(script.tree):  # outer regions come before those within them
        change = begins(node)
        if change is not None:
            ids = {id(n) for n in ast.walk(node)}
            found = found | ids if change else found - ids
    return found


def autocast_of(node: ast.AST, script: Script) -> Optional[ast.expr]:
    """The autocast that a node begins a region of, if it does: a call, or a name that one was given."""
    regions = [c for c in contexts_of(node) if name_of(c.func if isinstance(c, ast.Call) else c) == "autocast" or script.is_a("autocast", c)]
    return regions[0] if regions else None


def is_on(region: Optional[ast.expr]) -> Optional[bool]:
    """Whether an autocast is on, as far as it is written there; None without one."""
    return None if region is None else not (isinstance(region, ast.Call) and is_off(region))
