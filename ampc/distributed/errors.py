"""The errors of training in several processes. All are RuntimeErrors."""

from __future__ import annotations


class DistError(RuntimeError):
    """Something went wrong between the processes of a group."""


class DistBackendError(DistError):
    """A process of the group is missing or gone, or MPI has failed.

    ``cause`` says which process failed first, where this error follows from that: then it alone is told to the others."""

    def __init__(self, message: str = "", cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause


class DistNetworkError(DistError):
    """The processes could not be connected."""


class DistStoreError(DistError):
    """A store could not be read or written."""


class QueueEmptyError(DistStoreError):
    """A store's queue has no value."""


class WrongRank(RuntimeError, ValueError):
    """There is no such rank, or it cannot be meant. torch raises one or the other."""
