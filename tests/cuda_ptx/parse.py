"""PTX, taken apart: the arrays and functions of a module, and the statements of each function."""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, NamedTuple


class NotUnderstood(Exception):
    """PTX that the translator has no C++ for."""


class Statement(NamedTuple):
    """Text without its semicolon. Braces around statements, and labels, are statements, too."""

    line: int
    text: str


class Parameter(NamedTuple):
    name: str
    size: int  # in bytes


class Array(NamedTuple):
    """Constant data of the module, as nvcc writes it: bytes."""

    name: str
    align: int
    values: str


class Function(NamedTuple):
    name: str
    is_kernel: bool
    parameters: List[Parameter]  # those of results first
    body: List[Statement]

    def calls(self) -> List[str]:
        """The names of the functions that it calls."""
        found = (CALL.match(s.text) for s in self.body)
        return [m["name"] for m in found if m]


class Module(NamedTuple):
    arrays: Dict[str, Array]
    shared: str  # the name of the memory that a launch asks for
    functions: Dict[str, Function]


HEADER = re.compile(r"(\.visible )?\.(entry|func)\b")
CALL = re.compile(r"call(\.uni)? (\((?P<results>[^)]*)\), )?(?P<name>[\w$]+)(, \((?P<arguments>[^)]*)\))?$")
SCALAR = re.compile(r"\.param (?:\.align \d+ )?\.[bfsu](\d+) ([\w$]+)(?:\[(\d+)\])?")
ARRAY = re.compile(r"\.(?:global|const) \.align (\d+) \.b8 ([\w$]+)\[\d+\] = \{([\d, ]*)\}$")
LINE = re.compile(r"[\w$]+:|\.(version|target|address_size) .*")  # has no semicolon
SHARED = re.compile(r"\.extern \.shared \.align \d+ \.b8 ([\w$]+)\[\]$")
# nvcc puts a number that is new each time into the names of functions that a file has for itself.
OWN_NAME = re.compile(r"(_INTERNAL_)[0-9a-f]{8}(_\d+_\w+?_)[0-9a-f]{8}")


def parameters(text: str) -> List[Parameter]:
    return [Parameter(name, int(bits) // 8 * int(count or 1)) for bits, name, count in SCALAR.findall(text)]


def statements(text: str) -> Iterator[Statement]:
    """All statements of a module, in order. Braces within one, of vectors and of data, belong to it."""
    begun, line, depth = "", 0, 0
    for number, row in enumerate(OWN_NAME.sub(r"\1\2", text).split("\n"), 1):
        row = row.partition("//")[0].strip()
        if LINE.fullmatch(row):
            yield Statement(number, row)
            continue
        for piece in re.split(r"([;{}])", row):
            if not begun.strip():
                begun, line = "", number
            if piece == ";" or (piece in ("{", "}") and not depth and (not begun or HEADER.match(begun))):
                words = " ".join(begun.split())
                begun = ""
                if words:
                    yield Statement(line, words)
                if piece != ";":
                    yield Statement(number, piece)
            else:
                depth += (piece == "{") - (piece == "}")
                begun += piece
        begun += " "


def block(rest: Iterator[Statement]) -> List[Statement]:
    """What follows up to the brace that closes a function, without it."""
    found, depth = [], 1
    for statement in rest:
        depth += (statement.text == "{") - (statement.text == "}")
        if not depth:
            break
        found.append(statement)
    return found


def function(header: str, body: List[Statement]) -> Function:
    found = re.match(r"(?:\.visible )?\.(entry|func) (?:\((.*?)\) )?([\w$]+)\s*(?:\(([^)]*)\))?", header)
    kind, results, name, taken = found.groups()
    return Function(name, kind == "entry", parameters(results or "") + parameters(taken or ""), body)


def parse(text: str) -> Module:
    module, before = Module({}, "", {}), ""
    rest = statements(text)
    for line, header in rest:
        array, shared = ARRAY.match(header), SHARED.match(header)
        if header == "{":
            one = function(before, block(rest))
            module.functions[one.name] = one
        elif array:
            module.arrays[array[2]] = Array(array[2], int(array[1]), array[3])
        elif shared:
            module = module._replace(shared=shared[1])
        elif not LINE.fullmatch(header) and not HEADER.match(header):
            raise NotUnderstood(f"line {line}: {header}")
        before = header
    return module
