"""What each process of a host is doing, in memory that they share. It tells a process that waits who is missing.

A process writes its own slot alone, and nobody waits for a slot: the text may be torn, which only a message would show."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

from .._process.stand_in import lives
from ._shared import shared_memory

GROUPS = 64  # how many groups are told apart
SAYINGS = 64  # and how many warnings
RUNS, LEFT, ENDED, FAILED, FOLLOWED = range(5)  # LEFT: has destroyed its groups; FOLLOWED: failed by a failure of another one
_SLOT = np.dtype([("pid", "i8"), ("rank", "i8"), ("state", "i8"), ("entered", "i8", GROUPS), ("saved", "i8"), ("said", "i8", SAYINGS),
                  ("doing", "S120"), ("why", "S1600")])


class Board:
    """The slots of this host's processes. Making it is collective over ``comm``."""

    def __init__(self, MPI: Any, comm: Any) -> None:
        host = comm.Split_type(MPI.COMM_TYPE_SHARED)
        together = os.environ.get("AMPC_RANKS_PER_HOST", "")
        if together:
            host = host.Split(comm.rank // _count("AMPC_RANKS_PER_HOST", together))
        self._slots = np.ndarray((host.size,), _SLOT, buffer=shared_memory(host, _SLOT.itemsize * host.size))
        self._mine = self._slots[host.rank:host.rank + 1]
        self._mine["pid"], self._mine["rank"] = os.getpid(), comm.rank
        host.Barrier()
        self._doing, self._entered = self._mine["doing"], self._mine["entered"][0]
        self._row: Dict[int, int] = {int(slot["rank"]): i for i, slot in enumerate(self._slots)}

    def here(self, ranks: List[int]) -> List[int]:
        """Those of these processes that are on this host."""
        return [rank for rank in ranks if rank in self._row]

    def enter(self, group: int, number: int, doing: str) -> None:
        """This process begins the operation ``number`` of a group."""
        self._doing[0] = doing.encode()[:119]
        self._entered[group % GROUPS] = number

    def fields(self, group: int) -> Tuple[Any, Any]:
        """What ``enter`` writes for a group, as memory for the core: the number and the text."""
        begin = group % GROUPS
        return self._mine["entered"][0, begin:begin + 1], self._doing.view("u1")

    def meet(self, group: int, number: int, ranks: List[int], goes_on: Callable[[], bool]) -> None:
        """Waits until those of these processes that are on this host have begun the operation ``number`` of the group; within MPI they would
        wait at the cost of a core. Ends early where ``goes_on()`` is False."""
        rows = [self._row[rank] for rank in ranks if rank in self._row]
        entered, begun, tries = self._slots["entered"][:, group % GROUPS], 0, 0
        while begun < len(rows) and goes_on():
            if entered[rows[begun]] >= number:
                begun += 1
            else:
                time.sleep(min(max(0, tries - 20) * 2e-6, 2e-4))  # 0: who computes goes first
                tries += 1

    def saves(self, file: int) -> List[int]:
        """This process saves a file, by its number; which others have saved it as their last."""
        self._mine["saved"] = file
        return [int(slot["rank"]) for slot in self._slots if slot["saved"] == file and slot["rank"] != self._mine["rank"][0]]

    def says_first(self, saying: int) -> bool:
        """This process would say something, by its number: whether no other says it. At the same moment two may take themselves for the first,
        but one does always: it notes first that it would, and then, negative, that it does."""
        own, every, row = self._mine["said"][0], self._slots["said"], self._row[int(self._mine["rank"][0])]
        free = np.flatnonzero(own == 0)[:1]
        own[free] = saying
        if (np.abs(every[:row]) == saying).any() or (every == -saying).any():
            return False
        own[free] = -saying
        return True

    def _is_own(self) -> bool:
        """Whether the slot is this process', which is not forked from one that has it."""
        return int(self._mine["pid"][0]) == os.getpid()

    def leave(self, ends: bool) -> None:
        """This process takes part in nothing any more, because it ends, or has destroyed its groups."""
        if not self.failed() and self._is_own():
            self._mine["state"] = ENDED if ends else LEFT

    def come_back(self) -> None:
        """It does again."""
        self._mine["state"] = RUNS

    def fail(self, how: str, cause: str = "") -> None:
        """This process has failed, by a failure of another one where a cause is given; the first reason is kept."""
        if not self.failed() and self._is_own():
            self._mine["why"] = (cause or f"rank {self._mine['rank'][0]} {how}").encode()[:1599]
            self._mine["state"] = FOLLOWED if cause else FAILED

    def failed(self) -> bool:
        """Whether this process has."""
        return bool(self._mine["state"] >= FAILED)

    def all_know(self) -> bool:
        """Whether every process of this host has failed, left or died."""
        return all(slot["state"] != RUNS or not lives(str(slot["pid"])) for slot in self._slots)

    def is_next_to_go(self) -> bool:
        """Whether no other process of this host, by whose failure this one has failed, is still there."""
        return bool(self._mine["state"] != FOLLOWED) or not any(slot["state"] == FAILED and lives(str(slot["pid"])) for slot in self._slots)

    def gone(self, ranks: List[int]) -> Optional[str]:
        """What has happened to the first of these processes that failed or died; None where none did."""
        for rank in ranks:
            slot = self._slots[self._row[rank]] if rank in self._row else None
            if slot is None or int(slot["pid"]) == os.getpid():
                continue
            if slot["state"] >= FAILED:
                return bytes(slot["why"]).decode(errors="replace")
            if not lives(str(slot["pid"])):
                return f"rank {rank} (process {slot['pid']}) has died; {last_begun(_doing(slot))}"
        return None

    def ended_before(self, group: int, number: int, ranks: List[int]) -> Optional[str]:
        """Which of these processes has left without the operation ``number`` of the group; None where none has."""
        for rank in ranks:
            slot = self._slots[self._row[rank]] if rank in self._row else None
            if slot is not None and slot["state"] in (LEFT, ENDED) and slot["entered"][group % GROUPS] < number:
                return ended_without(rank, bool(slot["state"] == ENDED), _doing(slot))
        return None

    def missing(self, group: int, number: int, ranks: List[int]) -> str:
        """Which of these processes have not begun the operation ``number`` of the group, in words; or the one before it that this process is still
        in."""
        texts, number = [], min(number, int(self._mine["entered"][0, group % GROUPS]))
        for rank in ranks:
            slot = self._slots[self._row[rank]] if rank in self._row else None
            if slot is None:
                texts.append(f"rank {rank} is on another host")
            elif slot["entered"][group % GROUPS] < number:
                texts.append(not_come(rank, _doing(slot)))
        return "; ".join(texts) or "all ranks have begun it"


def not_come(rank: int, doing: str) -> str:
    """Of a rank that has not begun an operation, in words, with the last one that it has."""
    return f"rank {rank} has not come to it ({last_begun(doing)})"


def ended_without(rank: int, ends: bool, doing: str) -> str:
    """The same of one that has left."""
    return f"rank {rank} has {'ended' if ends else 'destroyed its groups'} without it; {last_begun(doing)}"


def last_begun(doing: str) -> str:
    """The last operation that a rank has begun, in words."""
    return f"the last it began was {doing}" if doing else "it has begun none yet"


def _count(name: str, text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"{name} must be a number from 1 on, got {text!r}")
    return int(text)


def _doing(slot: Any) -> str:
    return bytes(slot["doing"]).decode(errors="replace")
