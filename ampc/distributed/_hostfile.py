"""Lists of hosts for mpiexec, read before it is started: it tells of a mistake neither what was expected nor, mostly, where."""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, NoReturn, Optional, Tuple

from .._process.launcher import CannotStart

_COUNTS = ("slots", "count", "cpu")  # Open MPI's words for how many processes a host takes
_MOST = tuple(f"{word}{mark}max" for word in _COUNTS for mark in "_-") + ("max_slots", "max-slots")
_OTHERS = ("port", "username", "user_name", "user-name")


class _Line:
    """A line of the file that names a host."""

    def __init__(self, file: str, number: int, text: str) -> None:
        self._file, self.number, self._text = file, number, text

    def fail(self, expected: str, got: str) -> NoReturn:
        """CannotStart that says where the mistake is."""
        raise CannotStart(f"{self._file}, line {self.number}: expected {expected}, got {got!r} in {self._text!r}")

    def read_for_open_mpi(self) -> Tuple[str, Optional[int]]:
        """The host, and how many processes it takes; None where the line does not say it."""
        host, *options = re.sub(r"\s*=\s*", "=", self._text).split()
        if re.search(r"[=,:]", host):
            self.fail("a host first, as in `node1 slots=4`", host)
        counts: Dict[str, int] = {}
        for option in options:
            name, _, value = option.partition("=")
            kind = "slots" if name in _COUNTS else "max_slots" if name in _MOST else ""
            if not value or not kind and name not in _OTHERS:
                self.fail("slots=, max_slots=, port= or username=, each with a value", option)
            if kind in counts:
                self.fail(f"{kind}= once", option)
            if kind:
                counts[kind] = self._count(name + "=", value)
        count = counts.get("slots")
        if count is not None and counts.get("max_slots", count) < count:
            self.fail(f"max_slots= from {count} on, as slots= says", str(counts["max_slots"]))
        return host, count

    def read_for_mpich(self) -> Tuple[str, Optional[int]]:
        """The same of `node1:4`."""
        host, colon, count = self._text.split()[0].partition(":")
        return host, self._count(f"{host}:", count) if colon else None

    def _count(self, name: str, value: str) -> int:
        if not value.isdigit() or int(value) < 1:
            self.fail(f"a number from 1 on after {name}", value)
        return int(value)


def _lines(file: str) -> Iterator[_Line]:
    """CannotStart where it cannot be read."""
    try:
        with open(file, encoding="utf-8", errors="replace") as f:
            for number, line in enumerate(f, 1):
                text = line.partition("#")[0].strip()
                if text:
                    yield _Line(file, number, text)
    except OSError as error:
        raise CannotStart(f"the list of hosts cannot be read: {error}") from None


def names_of(file: str, open_mpi: bool) -> List[str]:
    """The hosts that a file names. CannotStart as ``hosts_of``."""
    return [(line.read_for_open_mpi() if open_mpi else line.read_for_mpich())[0] for line in _lines(file)]


def hosts_of(file: str, nproc: int, open_mpi: bool) -> int:
    """How many hosts a file names for so many processes. CannotStart, with the line, where it cannot be read, names none, has a mistake, or where its
    hosts take fewer processes."""
    places: Dict[str, Optional[int]] = {}
    for line in _lines(file):
        host, count = line.read_for_open_mpi() if open_mpi else line.read_for_mpich()
        if open_mpi and host in places and (places[host], count) != (None, None):
            line.fail("a host once, or on several lines without slots=", host)
        places[host] = count
    if not places:
        raise CannotStart(f"{file} names no host")
    counts = [count for count in places.values() if count is not None]
    if open_mpi and len(counts) == len(places) and sum(counts) < nproc:
        taken = f"its host takes {sum(counts)}" if len(places) == 1 else f"its {len(places)} hosts take {sum(counts)}"
        raise CannotStart(f"{file}: {taken} processes in all, and {nproc} are asked for; raise slots=, or start fewer")
    return len(places)
