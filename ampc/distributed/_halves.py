"""Reductions of 16-bit values between processes that share no memory."""

from __future__ import annotations

from typing import Any

from .. import _C
from .. import _creation as make
from .._C import Tensor
from ._memory import memory
from ._shared import COMBINE


class Halves:
    """``result`` of 16 bits becomes the reduction of all ``given``, which are as long, of its dtype or float32, and divided.

    Each process gets all others' values of its share, combines them in float32, and rounds once; then the shares are given to all. So values
    travel in their own dtype and results in 16 bits, where MPI's own reduction would take float32 for both."""

    def __init__(self, MPI: Any, comm: Any, op: Any, given: Tensor, result: Tensor, divisor: int) -> None:
        size, n = comm.size, given.numel()
        edges = [n * rank // size for rank in range(size + 1)]
        counts, own = [end - begin for begin, end in zip(edges, edges[1:])], slice(*edges[comm.rank:comm.rank + 2])
        self._share, self._size, self._how, self._divisor, self._comm = result[own], size, COMBINE[op], divisor, comm
        self._parts = make.empty(size * counts[comm.rank], dtype=given.dtype, device="cpu")
        kind, half = (MPI.FLOAT if given.element_size() == 4 else MPI.UINT16_T), MPI.UINT16_T
        self._sent = [memory(MPI, given), counts, edges[:-1], kind]
        self._got = [memory(MPI, self._parts), [counts[comm.rank]] * size, kind]
        self._place, self._all = MPI.IN_PLACE, [memory(MPI, result), counts, edges[:-1], half]

    def run(self) -> None:
        """Collective over the communicator."""
        self._comm.Alltoallv(self._sent, self._got)
        _C._ranks_combine(self._how, self._parts, self._size, self._divisor, self._share)
        self._comm.Allgatherv(self._place, self._all)
