"""The passes of a model whose ranks exchange values, counted: who waits for a rank in one of them is told which it is, and not of which collectives
it is made."""

from __future__ import annotations

from typing import Sequence

from .groups import ProcessGroup


class Passes:
    """Of the model that errors call ``title``, whose messages go by ``groups``. ``remedy`` is another way out where ranks have different numbers of
    batches."""

    def __init__(self, title: str, groups: Sequence[ProcessGroup], remedy: str = "") -> None:
        self._title, self._groups, self._count = title, groups, 0
        self._advice = f"all ranks must make as many passes: give each the same number of batches{remedy}"

    def begin_forward(self) -> None:
        """A forward pass begins in whose messages all take part."""
        self._tell(f"the forward pass before backward pass {self._count + 1}")

    def begin_backward(self) -> None:
        """A backward pass begins that averages gradients."""
        self._count += 1
        self._tell(f"backward pass {self._count}")

    def _tell(self, what: str) -> None:
        for group in self._groups:
            group.within(f"{what} of {self._title}", self._advice)
