"""Processes that share no memory, each on a host of its own: what they tell each other before an operation, so that all know that all call the same
one, and with it the values of an all_reduce that is not large.

Each sends a message to each other one, at once and of a size that MPI sends without asking, and looks for theirs in the thread that needs them. So
nobody waits in MPI, where it could not be told who does not come, and no thread is woken."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Tuple

import numpy as np

from .. import _C
from .._C import Tensor
from ._memory import memory
from ._shared import ALL_REDUCE, COMBINE, call_in_words, checksum_of
from .reductions import ReduceOp, has_op
from .work import SLICE

if TYPE_CHECKING:
    from .groups import ProcessGroup

MOST = 8  # processes; more would send too many messages
MOST_BYTES = 1 << 22  # of an all_reduce of two processes, each of which gets all values of the other
HEADER, PART = 64, 60 << 10  # bytes of a message: what is called, and values; Open MPI sends up to 64 KB at once over TCP
LOOKS = 200  # at a message, some 200 microseconds, before a thread begins to sleep between two looks
LONGEST = 2e-4  # seconds between two looks
_CALL, _VALUES = 1, 2  # tags of messages
_left: List[Any] = []  # what MPI may still read and write, where a wait has ended early


def _rest(size: int) -> Iterator[Tuple[int, int]]:
    """Where the parts after the first begin and end, of so many bytes."""
    for begin in range(PART, size, PART):
        yield begin, min(begin + PART, size)


@functools.lru_cache(1024)
def _call(n: int, dtype: Any, op: Any) -> Tuple[str, int]:
    """An all_reduce in words, and the bytes of an element; '' where the dtype has no such reduction."""
    return call_in_words(ALL_REDUCE, n, dtype.name, op, 0) if has_op(dtype, op) else "", dtype.itemsize


class Apart:
    """For a group of processes. Making it is collective over its communicator, as are its methods, which run in the group's turn."""

    def __init__(self, group: ProcessGroup, MPI: Any) -> None:
        self._group, self._MPI, self._comm, self._own = group, MPI, group.comm.Dup(), group.rank()
        self._most = MOST_BYTES // (group.size() - 1) ** 2
        self._others = [rank for rank in range(group.size()) if rank != self._own]
        self._rows = [np.empty(HEADER + self._most, np.uint8).data for _ in range(group.size())]  # what has come; own: what is sent first
        self._calls = [row[:HEADER].cast("Q") for row in self._rows]  # what a process calls, and how many bytes of values it sends
        self._first = [(rank, [self._rows[rank][:HEADER + PART], MPI.BYTE]) for rank in self._others]
        self._values = [MPI.Get_address(row) + HEADER for row in self._rows]
        self._values[self._own] = 0  # they are where the result will be

    def takes(self, t: Tensor) -> bool:
        """Whether ``all_reduce`` takes so many values."""
        return bool(t.numel() * t.element_size() <= self._most)

    def agree(self, same: str) -> bool:
        """Whether all call with the same text. Waits for all."""
        return self._tell(same, b"", {})

    def all_reduce(self, same: str, t: Tensor, op: Any, divisor: int) -> bool:
        """``t``, which lies in a row, becomes the reduction of all processes' tensors, divided. Whether all call with the same text; where not,
        nothing is done."""
        return self._reduce(same, t, memory(self._MPI, t), t.element_size(), COMBINE[op], divisor)

    def at_once(self, *call: Any) -> bool:
        """``Ranks.at_once`` of such a group: runs an ``all_reduce`` that is waited for, where its tensor is good as it is and no operation is before
        it; else False."""
        kind, to, _, op, _ = call
        row = _C._ranks_row(to) if kind == ALL_REDUCE and isinstance(op, ReduceOp) else None
        if row is None:
            return False
        address, n, dtype = row
        same, size = _call(n, dtype, op)
        if not same or n * size > self._most:
            return False
        group = self._group
        values, divisor = self._MPI.memory.fromaddress(address, n * size), group.size() if op is ReduceOp.AVG else 1

        def run() -> None:
            if not self._reduce(same, to, values, size, COMBINE[op], divisor):
                group._differ(same, to)

        if not group.run_here(same, run):
            return False
        _C._ranks_wrote(to)
        return True

    def _reduce(self, same: str, t: Tensor, values: Any, size: int, how: int, divisor: int) -> bool:
        """``all_reduce`` of a tensor with this memory and elements of so many bytes."""
        rest: Dict[int, List[Any]] = {}
        if not self._tell(same, values, rest):
            return False
        _C._ranks_combine_at(how, self._values, divisor, t, 0, min(PART, len(values)) // size)
        for begin, end in _rest(len(values)):
            self._wait(rest[begin], (t, rest))
            _C._ranks_combine_at(how, self._values, divisor, t, begin // size, (end - begin) // size)
        return True

    def _tell(self, same: str, values: Any, rest: Dict[int, List[Any]]) -> bool:
        """Tells all the others a call with its values, and waits for theirs. Whether all have made the same; then ``rest`` has the messages with the
        values after the first part, by where they begin, which are on the way."""
        comm, own, first, BYTE = self._comm, self._rows[self._own], min(PART, len(values)), self._MPI.BYTE
        call = self._calls[self._own]
        call[0], call[1] = checksum_of(same), len(values)
        own[HEADER:HEADER + first] = values[:first]
        heard = [comm.Irecv(message, rank, _CALL) for rank, message in self._first]
        heard += [comm.Isend([own, HEADER + first, BYTE], rank, _CALL) for rank in self._others]
        for begin, end in _rest(len(values)):
            rest[begin] = [comm.Isend([values[begin:end], BYTE], rank, _VALUES) for rank in self._others]
        self._wait(heard, (heard, values, rest))
        for rank in self._others:
            for begin, end in _rest(self._calls[rank][1]):
                rest.setdefault(begin, []).append(comm.Irecv([self._rows[rank][HEADER + begin:HEADER + end], BYTE], rank, _VALUES))
        agreed = all(self._calls[rank][0] == call[0] for rank in self._others)
        if not agreed:
            self._wait([request for requests in rest.values() for request in requests], (values, rest))
        return agreed

    def _wait(self, requests: List[Any], runs: Any) -> None:
        """Waits for messages. A process that can come no more, or not in time, is an error."""
        try:
            for request in requests:
                looks = LOOKS
                while looks and not request.Test():
                    looks -= 1
                if not looks:
                    self._wait_asleep(request)
        except BaseException as error:
            _left.append((self._rows, requests, runs))
            self._group._lose(error)
            raise

    def _wait_asleep(self, request: Any) -> None:
        pause, asked = 0.0, time.monotonic()
        while not request.Test():
            time.sleep(pause)
            pause = min(pause + 2e-6, LONGEST)
            if time.monotonic() - asked >= SLICE:
                self._group._wait()
                asked = time.monotonic()
