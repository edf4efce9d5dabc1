"""What a name stands for, where it stands: the assignments of a function, and those of the file that happen once."""

from __future__ import annotations

import ast
import re
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .reader import Script, name_of, text_of
from .regions import autocast_of, contexts_of, is_on, within

Place = Tuple[int, int]  # line and column


def start_of(node: Any) -> Place:
    """Where a node begins."""
    return node.lineno, node.col_offset


def _end_of(node: Any) -> Place:
    return node.end_lineno, node.end_col_offset


def sum_of(statement: ast.AugAssign) -> ast.BinOp:
    """x - y of x -= y. The same node at every call."""
    made: Optional[ast.BinOp] = getattr(statement, "as_operator", None)
    if made is None:
        made = ast.BinOp(left=statement.target, op=statement.op, right=statement.value)
        statement.as_operator = ast.copy_location(made, statement)  # type: ignore[attr-defined]
    return made


def _assigned(target: ast.AST, value: Optional[ast.expr]) -> Iterator[Tuple[str, Optional[ast.expr]]]:
    """The names of a target with their values; a part of something that is unpacked stands for the whole."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Starred):
        yield from _assigned(target.value, None)
    elif isinstance(target, (ast.Tuple, ast.List)):
        parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) else [value] * len(target.elts)
        for t, v in zip(target.elts, parts):
            yield from _assigned(t, v)


def _assignments(node: ast.AST) -> Iterator[Tuple[str, Optional[ast.expr]]]:
    """What a statement gives to names; None is a value that is not known."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _assigned(target, node.value)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield from _assigned(node.target, node.value)
    elif isinstance(node, ast.AugAssign):
        yield from _assigned(node.target, sum_of(node))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and re.search(r"[^_]_$", name_of(node.value.func)):  # x.sub_(y)
        yield from _assigned(getattr(node.value.func, "value", node), node.value)


def _within(body: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function with those within it; of a module those outside functions."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    todo: List[ast.AST] = [body]
    while todo:
        node = todo.pop()
        yield node
        if node is body or isinstance(body, functions) or not isinstance(node, functions):
            todo.extend(ast.iter_child_nodes(node))


class Scope:
    """The names of a function, or of the module."""

    def __init__(self, body: Any, script: Script) -> None:
        self.script, self.shared = script, _shared(script)
        self.unrecorded = any(word in text_of(d) for d in getattr(body, "decorator_list", []) for word in ("no_grad", "inference_mode"))
        self.values: Dict[str, List[Tuple[Place, Optional[ast.expr]]]] = {}
        self.loops = set()  # the names that a loop gives values
        self.batches = set()  # those that are batches of data, by the name of what the loop goes through
        self.spans: List[Tuple[Place, Place]] = []  # where loops begin and end
        for node in _within(body):
            for name, value in _assignments(node):
                self.values.setdefault(name, []).append((_end_of(node), value))
            if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
                for name, _ in _assigned(node.target, None):
                    self.loops.add(name)
                    self.values.setdefault(name, []).append((_end_of(node.target), None))
                    if re.search("load|data|batch", text_of(node.iter).lower()):
                        self.batches.add(name)
            if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
                self.spans.append((start_of(node), _end_of(node)))
            if isinstance(node, ast.arguments):
                for a in (*node.posonlyargs, *node.args, *node.kwonlyargs):
                    self.values.setdefault(a.arg, []).append((_end_of(a), None))
        for found in self.values.values():
            found.sort(key=lambda pair: pair[0])

    def resolve(self, node: Any) -> Any:
        """The expression behind a name, by the last assignment before it; the node itself otherwise."""
        for _ in range(8):
            behind = self._behind(node)
            if behind is None:
                return node
            node = behind
        return node

    def _behind(self, node: Any) -> Optional[ast.expr]:
        if isinstance(node, ast.Name) and node.id in self.values:
            earlier = [value for end, value in self.values[node.id] if end <= start_of(node)]
            return earlier[-1] if earlier else None
        return self.shared.get(text_of(node)) if isinstance(node, (ast.Name, ast.Attribute)) else None

    def is_carried(self, node: Any) -> bool:
        """Whether a name may have a value here that a later line gave it in an earlier iteration of a loop."""
        if not isinstance(node, ast.Name) or node.id not in self.values:
            return False
        here, ends = start_of(node), [end for end, _ in self.values[node.id]]
        around = [(a, b) for a, b in self.spans if a <= here <= b]
        return any(not any(a <= end <= here for end in ends) and any(here < end <= b for end in ends) for a, b in around)

    def call(self, node: Any, *names: str) -> Optional[ast.expr]:
        """The first operand of torch.exp(x) or x.exp(); None for any other function, one of the script's own by that name, too."""
        if not isinstance(node, ast.Call) or name_of(node.func) not in names:
            return None
        full = self.script.full(node.func)
        if full.startswith("torch."):
            return node.args[0] if node.args else None
        if not isinstance(node.func, ast.Attribute) or full.split(".")[0] in self.script.imported.values():
            return None
        return None if self.is_foreign(node.func.value) else node.func.value

    def pair(self, node: Any, operator: type, *names: str) -> Optional[Tuple[ast.expr, ast.expr]]:
        """Both operands of x / y, x.div(y) or torch.div(x, y)."""
        if isinstance(node, ast.BinOp):
            return (node.left, node.right) if isinstance(node.op, operator) else None
        first = self.call(node, *names)
        others = [] if first is None else [a for a in node.args if a is not first]
        return (first, others[0]) if first is not None and len(others) == 1 and not node.keywords else None

    def is_foreign(self, node: ast.expr) -> bool:
        """Whether an array of another package, such as np.asarray(a), is a part of the expression."""
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        return any(self.script.is_foreign(n) for n in (*ast.walk(node), *(self.resolve(name) for name in names)))


def scope_of(script: Script, body: Any) -> Scope:
    """The names of a function of the script, or of the module: read once."""
    kept: Dict[int, Scope] = script.__dict__.setdefault("scopes_of_names", {})
    if id(body) not in kept:
        kept[id(body)] = Scope(body, script)
    return kept[id(body)]


def speaks_of(node: Any, word: str, scope: Scope) -> bool:
    """Whether a name in the expression, or in what stands behind one of its names, has the word."""
    names = [n for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))]
    behind = [n for name in names if scope.resolve(name) is not name for n in ast.walk(scope.resolve(name))]
    return any(word in name_of(n).lower() for n in (*names, *behind))


def _speaks_of_itself(name: str, value: ast.AST) -> bool:
    """self.n = self.n * 2 says nothing of what self.n is."""
    return any(isinstance(n, (ast.Name, ast.Attribute)) and text_of(n) == name for n in ast.walk(value))


def _shared(script: Script) -> Dict[str, ast.expr]:
    """NEG, self.low, Net.low -> value, of names that are assigned once in the module, a class, or through self."""
    kept: Optional[Dict[str, ast.expr]] = getattr(script, "shared", None)
    if kept is not None:
        return kept
    found: Dict[str, list] = {}
    for node in _within(script.tree):
        bodies = [("",)] if node is script.tree else [("self.", "cls.", f"{node.name}.")] if isinstance(node, ast.ClassDef) else []
        for prefixes in bodies:
            for statement in node.body:  # type: ignore[attr-defined]
                for name, value in _assignments(statement):
                    for prefix in prefixes:
                        found.setdefault(prefix + name, []).append(value)
    for node in ast.walk(script.tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Attribute):
                    found.setdefault(text_of(target), []).append(None if isinstance(node, ast.AugAssign) else node.value)
        elif isinstance(node, ast.Global):
            for name in node.names:
                found.setdefault(name, []).append(None)
    once = {name: values[0] for name, values in found.items() if len(values) == 1 and values[0] is not None}
    script.shared = {name: value for name, value in once.items() if not _speaks_of_itself(name, value)}  # type: ignore[attr-defined]
    return script.shared  # type: ignore[attr-defined]


def wide_by_itself(script: Script) -> set:
    """The ids of nodes where a tensor is not float16 by what stands around: within autocast(enabled=False), in a function whose inputs
    custom_fwd casts, and in the arms of an `if` that asks for a dtype."""
    def begins(node: ast.AST) -> Optional[bool]:
        calls = [c for c in contexts_of(node) if isinstance(c, ast.Call)]
        casts = any("cast_inputs" in text_of(c) and "float32" in text_of(c) for c in calls)
        if casts or isinstance(node, (ast.If, ast.IfExp)) and "dtype" in text_of(node.test):
            return True
        region = autocast_of(node, script)
        return not is_on(region) if isinstance(region, ast.Call) else None

    return within(script, begins)


def without_gradients(script: Script) -> set:
    """The ids of nodes that autograd does not record: within no_grad and inference_mode, in functions that have them as decorators or are
    called from there alone, and in a data set's methods."""
    kept: Optional[set] = getattr(script, "unrecorded", None)
    if kept is not None:
        return kept
    found = within(script, _stops_recording)
    named: Dict[str, List[ast.Call]] = {}
    for call in script.calls if found else ():
        named.setdefault(name_of(call.func), []).append(call)
    for _ in range(2):  # through a function in between, too
        for f in script.functions:
            calls = named.get(f.name, [])
            if f.name == "__getitem__" or f.name.startswith("collate") or calls and all(id(c) in found for c in calls):
                found |= {id(n) for n in ast.walk(f)}
    script.unrecorded = found  # type: ignore[attr-defined]
    return found


def _stops_recording(node: ast.AST) -> Optional[bool]:
    """True where autograd stops to record, False where it goes on."""
    words = [text_of(c) for c in contexts_of(node)]
    if any("enable_grad" in w or "set_grad_enabled(True" in w for w in words):
        return False
    return True if any(word in w for w in words for word in ("no_grad", "inference_mode", "set_grad_enabled(False")) else None
