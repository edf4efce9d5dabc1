"""PackedSequence: sequences of several lengths in one batch, step by step without padding."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from .. import _C
from .._C import Tensor
from .._messages import checks as _checks


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Optional[Tensor]
    unsorted_indices: Optional[Tensor]


class PackedSequence(_Packed):
    """Sequences of several lengths, longest first, stored time step by time step.

    ``data`` [rows, ...] holds the first values of all sequences, then the second values of those that have any, and so on.
    ``batch_sizes`` (int64, on the CPU) says how many values each time step has. ``sorted_indices`` is the order by length, or None if the
    sequences came sorted. ``unsorted_indices`` restores the first order. ValueError if ``batch_sizes`` is not on the CPU."""

    __module__ = "ampc.nn.utils.rnn"  # where torch has it
    __slots__ = ()

    def __new__(cls, data: Tensor, batch_sizes: Optional[Tensor] = None, sorted_indices: Optional[Tensor] = None,
                unsorted_indices: Optional[Tensor] = None) -> PackedSequence:
        if batch_sizes is None:
            if not (isinstance(data, (tuple, list)) and len(data) == 2):
                raise TypeError("PackedSequence: `batch_sizes` is missing; nn.utils.rnn.pack_padded_sequence makes both")
            data, batch_sizes = data
        assert batch_sizes is not None
        if batch_sizes.is_cuda:
            raise ValueError("PackedSequence: `batch_sizes` must be on the CPU, because they are read before anything runs")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, data: Tensor) -> PackedSequence:
        if data is self.data:
            return self
        moved = [None if t is None else t.to(data.device) for t in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *moved)

    @property
    def is_cuda(self) -> bool:
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        return self.data.is_pinned()

    def pin_memory(self) -> PackedSequence:
        return self._with(self.data.pin_memory())

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same with its data moved or cast, as Tensor.to does it."""
        return self._with(self.data.to(*args, **kwargs))

    def cpu(self) -> PackedSequence:
        return self.to("cpu")

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same on a GPU, as Tensor.cuda moves it. Without a device, one that is on any GPU stays there."""
        if self.is_cuda and not args and kwargs.get("device") is None:
            return self
        return self._with(self.data.cuda(*args, **kwargs))

    def half(self) -> PackedSequence:
        return self.to(_C.float16)

    def float(self) -> PackedSequence:
        return self.to(_C.float32)

    def double(self) -> PackedSequence:
        return self.to(_C.float64)

    def long(self) -> PackedSequence:
        return self.to(_C.int64)

    def int(self) -> PackedSequence:
        return self.to(_C.int32)

    def short(self) -> PackedSequence:
        return self.to(_C.int16)

    def char(self) -> PackedSequence:
        return self.to(_C.int8)

    def byte(self) -> PackedSequence:
        return self.to(_C.uint8)


def invert_permutation(permutation: Optional[Tensor]) -> Optional[Tensor]:
    """The order that undoes ``permutation``; None for None."""
    import numpy as np

    if permutation is None:
        return None
    indices = np.empty(permutation.numel(), np.int64)
    indices[permutation.cpu().numpy()] = np.arange(len(indices))
    return _C.from_numpy(indices).to(permutation.device)


_checks.install(globals())
