"""A worker process of a DataLoader. It receives indices by one pipe and sends batches by another. It ends when its parent does."""

from __future__ import annotations

import os
import queue
import random
import signal
import sys
import threading
import traceback
from multiprocessing.reduction import ForkingPickler
from typing import Any, Callable, List, NamedTuple, Optional

import numpy as np

from ... import _C
from ..._C import Tensor
from ..._tensor import creation as make
from ...nn import Parameter


class WorkerInfo(NamedTuple):
    """The result of ``get_worker_info``: the worker's number, how many there are, its random seed, and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: Optional[WorkerInfo] = None


def get_worker_info() -> Optional[WorkerInfo]:
    """The WorkerInfo in a worker process; None elsewhere."""
    return _info


class _Text(str):
    """A text that a KeyError shows as it is, and not as a key."""

    def __repr__(self) -> str:
        return str(self)


class Failure(NamedTuple):
    """An exception in a worker."""

    type: Any
    message: str

    def reraise(self) -> None:
        """The same exception, whose text holds the worker's traceback."""
        raise self._again()  # no frame keeps it in a variable: the iterator is freed, and ends its workers, as soon as nobody has the exception

    def _again(self) -> BaseException:
        try:
            return self.type(_Text(self.message) if self.type is KeyError else self.message)
        except Exception:  # it is not made of one text
            return RuntimeError(self.message)


class End(NamedTuple):
    """A worker's stream is over."""


class Job(NamedTuple):
    """Everything that a worker starts from."""

    id: int
    num_workers: int
    seed: int
    dataset: Any
    fetcher: Callable[[], Any]  # makes a fetcher for an epoch
    init: Optional[Callable[[int], Any]]
    parent: int


def _listen(tasks: Any, wanted: queue.SimpleQueue, parent: int) -> None:
    """Reads indices from the pipe, so that the parent never waits to send them. Ends the process when the parent is gone."""
    while True:
        try:
            while not tasks.poll(1.0):
                if os.getppid() != parent:
                    os._exit(1)
            wanted.put(tasks.recv())
        except (EOFError, OSError):
            wanted.put(None)
            return


def _failure(worker: int) -> Failure:
    kind, text = sys.exc_info()[0], traceback.format_exc()
    name = kind.__name__ if kind is not None else "an exception"
    return Failure(kind, f"Caught {name} in DataLoader worker process {worker}.\n{text}")


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    make.manual_seed(seed)


def _reduce(t: Tensor) -> Any:
    """Pickles a batch's tensor. A history of gradients cannot be sent, so it is an error."""
    if t.requires_grad and not t.is_leaf:
        raise RuntimeError("DataLoader: a tensor with a history of gradients cannot leave a worker process; "
                           "detach() it, compute under no_grad(), or use num_workers=0")
    return t.__reduce_ex__(2)


def work(job: Job, tasks: Any, results: Any, others: List[Any]) -> None:
    """The process's main function. ``others``: ends of pipes that are not its own, which a fork has copied."""
    global _info
    for end in others:
        end.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    wanted: queue.SimpleQueue = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks, wanted, job.parent), daemon=True).start()
    for kind in (Tensor, Parameter):
        ForkingPickler.register(kind, _reduce)
    _info = WorkerInfo(job.id, job.num_workers, job.seed, job.dataset)
    trouble, fetch = None, None
    _C.set_num_threads(1)
    try:
        _seed(job.seed)
        if job.init is not None:
            job.init(job.id)
        fetch = job.fetcher()
    except Exception:
        trouble = _failure(job.id)
    while True:
        task = wanted.get()
        if task is None:
            return
        number, indices = task
        try:
            if number is None:  # another epoch
                trouble, fetch = None, job.fetcher()
                continue
            answer = trouble or fetch(indices)  # type: ignore[misc]
        except StopIteration:
            answer = End()
        except Exception:
            answer = _failure(job.id)
        try:
            results.send((number, answer))
        except (BrokenPipeError, ConnectionResetError):
            return
        except Exception:  # what cannot be sent
            results.send((number, _failure(job.id)))
