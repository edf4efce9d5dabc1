"""The rule about several processes: what all ranks must do, and only some do."""

from __future__ import annotations

import ast
import re
from typing import Iterator, List

from .order import Found
from .reader import Script, name_of

RANK = re.compile(r"(global_|world_|my_|local_|node_|proc_|process_)?rank|(is_)?(main|master)(_process|_proc|_node|_rank)?|is_rank_?(zero|0)|"
                  r"process_index", re.I)
FIX = "call backward() on all ranks, and let the condition choose what else is done; a rank without data takes 0 times its outputs as its loss"


def check(script: Script) -> Iterator[Found]:
    """Branches of which one has a backward pass, in scripts that average gradients."""
    if not any(name_of(node) in ("DistributedDataParallel", "DDP") for node in ast.walk(script.tree)):
        return
    for node in ast.walk(script.tree):
        if isinstance(node, ast.If) and _depends_on_rank(node.test):
            one, other = _backwards(node.body), _backwards(node.orelse)
            if bool(one) != bool(other):
                call = (one or other)[0]
                yield ("rank-dependent-backward", call.lineno, f"backward() is called where `{ast.unparse(node.test)}` says so, which differs "
                       "between ranks: the others do not come to the messages that average gradients, and wait or fail", FIX)


def _depends_on_rank(test: ast.expr) -> bool:
    """Whether a condition asks which rank this is; not whether there are ranks at all, as in `rank >= 0` and `rank != -1`."""
    if isinstance(test, ast.BoolOp):
        return any(map(_depends_on_rank, test.values))
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _depends_on_rank(test.operand)
    if isinstance(test, ast.Compare):
        right = test.comparators[0]
        absent = isinstance(right, ast.UnaryOp) or isinstance(right, ast.Constant) and right.value in (None, -1)
        exists = isinstance(test.ops[0], (ast.GtE, ast.Lt)) and isinstance(right, ast.Constant) and right.value == 0
        return not absent and not exists and (_is_rank(test.left) or _is_rank(right))
    return _is_rank(test)


def _is_rank(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):  # get_rank(), int(os.environ["RANK"]), is_main_process()
        name = name_of(node.func)
        return name in ("get_rank", "get_node_local_rank") or _named(node.func) or (name == "int" and any(map(_is_rank, node.args)))
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value in ("RANK", "LOCAL_RANK")
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Mod) and _is_rank(node.left)
    return _named(node)


def _named(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and RANK.fullmatch(name_of(node)) is not None


def _backwards(body: List[ast.stmt]) -> List[ast.Call]:
    """The calls of backward in a branch itself, in their order; not of functions that are defined there."""
    found: List[ast.Call] = []
    nodes: List[ast.AST] = list(reversed(body))
    while nodes:
        node = nodes.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            found.append(node)
        nodes += reversed(list(ast.iter_child_nodes(node)))
    return found
