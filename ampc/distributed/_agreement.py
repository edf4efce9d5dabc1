"""How the processes of a group find out, before an operation, that all call the same one, and how it is submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional

from .._C import Tensor
from ._shared import in_words
from .work import Work

if TYPE_CHECKING:
    from .groups import ProcessGroup


def agree(group: ProcessGroup, same: str, more: str = "") -> None:
    """RuntimeError in every process unless all call with the same ``same``; the message adds ``more``. On one host, or with each on its own, it waits
    for all. Runs in the group's turn."""
    if group.size() == 1:
        return
    if group.shared is not None and group.on_one_host:
        check(group, group.shared.meet(same), same + more)
    elif group.checks:
        check(group, group.apart.agree(same) if group.apart is not None else group.start.agrees(group.comm, same), same + more)


def check(group: ProcessGroup, agreed: bool, text: str) -> None:
    """RuntimeError in every process where they do not agree, which says what each calls."""
    if not agreed:
        group._differ(text)


def described(what: str, t: Tensor, *more: Any) -> str:
    """What must be the same in every process, in words."""
    return in_words(what, t.numel(), t.dtype.name, more)


def submit(group: ProcessGroup, async_op: bool, what: str, f: Callable[[], Any], result: Any, finish: Optional[Callable[[], Any]],
           given: Optional[Tensor] = None, here: bool = False) -> Optional[Work]:
    """Submits ``f`` and waits for it, or returns the Work, which keeps ``given`` alive. With ``here``, and nothing else to wait for, ``f`` runs in
    this thread."""
    if here and not async_op and group.run_here(what, f):
        if finish is not None:
            finish()
        return None
    work = group.submit(what, f, result, finish)
    work.kept = given
    if async_op:
        return work
    work.wait()
    return None
