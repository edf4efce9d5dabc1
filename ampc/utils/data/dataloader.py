"""DataLoader: samples in batches, fetched by this process or by worker processes."""

from __future__ import annotations

import _thread
import contextlib
import itertools
import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Dict, Generic, List, Optional, Tuple, TypeVar

from ..._C import Tensor
from ..._events import announce
from ..._messages.callers import warn
from ..._names.missing import absent_from
from ..._names.place import shown_name
from ..._tensor import creation as make
from .collate import default_collate, default_convert
from .dataset import Dataset, IterableDataset
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler
from .worker import End, Failure, Job, get_worker_info, work

T_co = TypeVar("T_co", covariant=True)

# -- fetching -------------------------------------------------------------------------------------------------


class _MapFetcher:
    """Samples at given indices, collated; without batches, the sample at an index."""

    def __init__(self, dataset: Any, collate: Callable, batched: bool, drop_last: bool) -> None:
        self.dataset, self.collate, self.batched = dataset, collate, batched

    def __call__(self, indices: Any) -> Any:
        if not self.batched:
            return self.collate(self.dataset[indices])
        many = getattr(self.dataset, "__getitems__", None)
        return self.collate(many(indices) if many is not None else [self.dataset[i] for i in indices])


class _StreamFetcher:
    """The next samples of a stream, as many as there are indices. StopIteration at its end."""

    def __init__(self, dataset: Any, collate: Callable, batched: bool, drop_last: bool) -> None:
        self.samples, self.collate, self.batched, self.drop_last, self.ended = iter(dataset), collate, batched, drop_last, False
        # Each is asked for by next(): a loop would call __iter__ again, which begins anew where it resets its object and returns that.
        self.each = itertools.starmap(next, itertools.repeat((self.samples,)))

    def __call__(self, indices: Any) -> Any:
        if not self.batched:
            return self.collate(next(self.samples))
        batch = [] if self.ended else list(itertools.islice(self.each, len(indices)))
        self.ended = len(batch) < len(indices)
        if not batch or (self.drop_last and self.ended):
            raise StopIteration
        return self.collate(batch)


class _Fetching:
    """Makes a fetcher for an epoch. It is sent to the workers."""

    def __init__(self, loader: DataLoader) -> None:
        self.kind = _StreamFetcher if loader._streams else _MapFetcher
        self.args = (loader.dataset, loader.collate_fn, loader.batch_size is not None or loader.batch_sampler is not None, loader.drop_last)

    def __call__(self) -> Any:
        return self.kind(*self.args)


def _pinned(batch: Any, device: Any = None) -> Any:
    """The batch with its tensors, and what else has a method ``pin_memory``, in page-locked memory. torch's function takes a device, too, which
    makes no difference for CUDA."""
    if isinstance(batch, Tensor):
        return batch.pin_memory()
    if isinstance(batch, dict):
        return {k: _pinned(v) for k, v in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(_pinned, batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map(_pinned, batch))
    return batch.pin_memory() if hasattr(batch, "pin_memory") else batch


# -- worker processes -----------------------------------------------------------------------------------------


class _Pool:
    """The worker processes of an iteration, and the pipes to them."""

    def __init__(self, loader: DataLoader) -> None:
        context = loader.multiprocessing_context
        if context is None:
            context = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else None)
        forked = context.get_start_method() == "fork"
        seed = int(make.randint(0, 2**62, (), generator=loader.generator, device="cpu").item())
        self.timeout = loader.timeout
        self.processes: List[Any] = []
        self.tasks: List[Any] = []  # our ends of the pipes
        self.results: List[Any] = []
        self.owner = os.getpid()
        try:
            for i in range(loader.num_workers):
                theirs, mine = context.Pipe(duplex=False)
                results, answers = context.Pipe(duplex=False)
                job = Job(i, loader.num_workers, seed + i, loader.dataset, _Fetching(loader), loader.worker_init_fn, os.getpid())
                others = [*self.tasks, *self.results, mine, results] if forked else []
                self.tasks.append(mine)
                self.results.append(results)
                process = context.Process(target=work, args=(job, theirs, answers, others), daemon=True)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: the core's survive it
                    process.start()
                self.processes.append(process)
                theirs.close()
                answers.close()
        except BaseException:
            self.close()
            raise

    def send(self, worker: int, task: Any) -> None:
        try:
            self.tasks[worker].send(task)
        except (BrokenPipeError, ConnectionResetError):
            self._tell_of_death(worker)

    def _tell_of_death(self, worker: int) -> None:
        process = self.processes[worker]
        process.join(5)
        code = process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        raise RuntimeError(f"DataLoader worker {worker} (pid {process.pid}) {how} while it was needed")

    def receive(self) -> Any:
        """(worker, number, answer) of the first worker that has one. RuntimeError if a worker died, or after ``timeout``."""
        end = time.monotonic() + self.timeout if self.timeout else None
        while True:
            ready = wait(self.results, None if end is None else max(0.0, end - time.monotonic()))
            if not ready:
                raise RuntimeError(f"DataLoader timed out after {self.timeout} seconds")
            worker = self.results.index(ready[0])
            try:
                return (worker, *self.results[worker].recv())
            except (EOFError, ConnectionResetError):
                self._tell_of_death(worker)

    def close(self) -> None:
        """Ends all workers, and waits for them."""
        if os.getpid() != self.owner:
            return
        for connection in [*self.tasks, *self.results]:
            with contextlib.suppress(OSError):
                connection.close()
        end = time.monotonic() + 1.0
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                process.terminate()
                process.join(1.0)
            if process.is_alive():
                process.kill()
                process.join()
        self.tasks, self.results, self.processes = [], [], []


class _BaseDataLoaderIter:
    """One pass over the data, or several with persistent workers. It has no reference to the loader, which may refer to it."""

    def __init__(self, loader: DataLoader) -> None:
        _warn_of_pinning(loader)
        self._dataset_kind, self._num_workers, self._persistent_workers = loader._dataset_kind, loader.num_workers, loader.persistent_workers
        self._index_sampler, self._fetching, self._pin_memory = loader._index_sampler, _Fetching(loader), loader.pin_memory and _has_gpu()
        self._timeout = loader.timeout

    def _reset(self, loader: DataLoader, first_iter: bool = False) -> None:
        """Begins a pass."""
        self._indices, self._num_yielded, self._told_length = iter(self._index_sampler), 0, loader._told_length

    def _next_data(self) -> Tuple[Any, Any]:
        """The next batch, and the indices of its samples."""
        raise NotImplementedError

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def __len__(self) -> int:
        return len(self._index_sampler)  # type: ignore[arg-type]

    def __next__(self) -> Any:
        batch, indices = self._next_data()
        self._num_yielded += 1
        if self._told_length is not None and self._num_yielded > self._told_length:
            warn(f"DataLoader: the stream said that it has {self._told_length} samples, and {self._num_yielded} batches have come from it; with "
                 "workers, each makes the whole stream unless it takes a part of its own by get_worker_info()")
        batch = _pinned(batch) if self._pin_memory else batch
        streams = self._fetching.kind is _StreamFetcher
        announce.batch_served(batch, self._fetching.args[0], self._num_yielded - 1, None if streams else indices)
        return batch


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Fetches in this process."""

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        if self._timeout:
            raise AssertionError(f"DataLoader: `timeout` is for worker processes, got {self._timeout} with num_workers=0")
        self._reset(loader, first_iter=True)
        self._fetch = self._fetching()

    def _next_data(self) -> Tuple[Any, Any]:
        indices = next(self._indices)
        return self._fetch(indices), indices


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Fetches in worker processes."""

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        if loader.prefetch_factor is None or loader.prefetch_factor < 1:
            raise AssertionError(f"DataLoader: `prefetch_factor` must be 1 or more, got {loader.prefetch_factor}")
        self._ahead, self._in_order = loader.prefetch_factor, loader.in_order
        self._sent = self._received = self._taken = 0  # tasks
        self._pool: Optional[_Pool] = _Pool(loader)
        self._reset(loader, first_iter=True)

    def _reset(self, loader: DataLoader, first_iter: bool = False) -> None:
        while self._pool is not None and self._received < self._sent:  # the last pass was left half way
            self._pool.receive()
            self._received += 1
        super()._reset(loader, first_iter)
        self._sent = self._received = self._taken = 0
        self._waiting: Dict[int, Any] = {}  # answers that came before their turn
        self._asked: Dict[int, Any] = {}  # the indices of tasks that were sent
        self._open = [True] * self._num_workers  # streams that are not over
        self._turn = itertools.cycle(range(self._num_workers))
        if self._pool is not None and not first_iter:
            for worker in range(self._num_workers):
                self._pool.send(worker, (None, None))
        for _ in range(self._ahead * self._num_workers):
            self._send_one()

    def _send_one(self) -> None:
        pool = self._pool
        worker = next((w for w in itertools.islice(self._turn, self._num_workers) if self._open[w]), None)
        if worker is None or pool is None:
            return
        try:
            indices = next(self._indices)
        except StopIteration:
            return
        pool.send(worker, (self._sent, indices))
        self._asked[self._sent] = indices
        self._sent += 1

    def _next_data(self) -> Tuple[Any, Any]:
        try:
            answer, indices = self._receive_next()
        except StopIteration:
            if not self._persistent_workers:
                self.close()
            raise
        except BaseException:  # Ctrl-C among them
            self.close()
            raise
        if isinstance(answer, Failure):
            answer.reraise()
        return answer, indices

    def _receive_next(self) -> Tuple[Any, Any]:
        pool = self._pool
        while self._taken < self._sent and pool is not None:
            number = self._taken if self._in_order else next(iter(self._waiting), -1)
            if number not in self._waiting:
                worker, number, answer = pool.receive()
                self._received += 1
                self._waiting[number] = answer
                if isinstance(answer, End):
                    self._open[worker] = False
                continue
            answer, indices = self._waiting.pop(number), self._asked.pop(number)
            self._taken += 1
            self._send_one()
            if not isinstance(answer, End):
                return answer, indices
        raise StopIteration

    def _shutdown_workers(self) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers."""
        pool, self._pool = self._pool, None
        self._indices = iter(())
        if pool is not None:
            pool.close()

    def __del__(self) -> None:
        pool = self.__dict__.get("_pool")
        if pool is None:
            return
        try:
            pool.close()
        except KeyboardInterrupt:  # Python swallows it here: it is raised again, right afterwards
            pool.close()
            threading.Timer(0.01, _thread.interrupt_main).start()


def _has_gpu() -> bool:
    from ...cuda import is_available

    return is_available()


# -- the loader -------------------------------------------------------------------------------------------------


def _warn_of_pinning(loader: DataLoader) -> None:
    if loader.pin_memory and loader.pin_memory_device:
        warn(f"DataLoader: `pin_memory_device` is not looked at, there is one kind of device to pin for; got {loader.pin_memory_device!r}")
    if loader.pin_memory and not _has_gpu():
        warn("DataLoader: `pin_memory` is for a GPU, and there is none: batches are not put in page-locked memory")


def _usable_cores() -> Optional[int]:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


class _InfiniteConstantSampler(Sampler[None]):
    """Stands for the indices of a stream, which has none."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


class _DatasetKind:
    """What ``DataLoader._dataset_kind`` is: of a dataset with indices, or of a stream."""

    Map = 0
    Iterable = 1


class DataLoader(Generic[T_co]):
    """Iterates over a dataset in batches.

    Args:
        dataset: a Dataset with indices, an IterableDataset, or anything that has ``__getitem__`` and ``__len__``.
        batch_size: samples in a batch; None for samples as they are.
        shuffle: a new random order for each pass.
        sampler, batch_sampler: your own order.
        num_workers: processes that fetch; 0 fetches in this process. Each has its own random numbers, seeded from ``generator`` or the
            default one.
        collate_fn: makes a batch from a list of samples, ``default_collate`` by default.
        pin_memory: puts batches in page-locked memory if there is a GPU.
        drop_last: leaves out a last batch that is not full.
        timeout: the longest time in seconds for a worker's batch; 0 for no limit.
        worker_init_fn: called in each worker with its number.
        multiprocessing_context: how workers are started: 'fork', 'spawn', 'forkserver' or a context of Python's multiprocessing. 'fork' by
            default, where there is it.
        generator: where shuffling and the workers take random numbers from.
        prefetch_factor: how many batches each worker fetches ahead, 2 by default.
        persistent_workers: keeps the workers for the next pass.
        in_order: True gives batches in the sampler's order, False as soon as they are ready.

    A worker's exception is raised again here, with the worker's traceback in its text. Ctrl-C ends the workers, and so does the end of
    this process. ValueError for options that exclude each other, and for setting the dataset, batch size, samplers, ``drop_last`` or
    ``persistent_workers`` of a loader that is made."""

    __module__ = shown_name(__name__)  # by which libraries know it

    _made = False
    _iterator: Optional[_BaseDataLoaderIter]

    def __init__(self, dataset: Any, batch_size: Optional[int] = 1, shuffle: Optional[bool] = None, sampler: Any = None,
                 batch_sampler: Any = None, num_workers: int = 0, collate_fn: Optional[Callable] = None, pin_memory: bool = False,
                 drop_last: bool = False, timeout: float = 0, worker_init_fn: Optional[Callable[[int], Any]] = None,
                 multiprocessing_context: Any = None, generator: Any = None, *, prefetch_factor: Optional[int] = None,
                 persistent_workers: bool = False, pin_memory_device: str = "", in_order: bool = True) -> None:
        if num_workers < 0:
            raise ValueError(f"DataLoader: `num_workers` must not be negative, got {num_workers}")
        if timeout < 0:
            raise ValueError(f"DataLoader: `timeout` must not be negative, got {timeout}")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError("DataLoader: `prefetch_factor` is of worker processes; set num_workers above 0")
        if prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError(f"DataLoader: `prefetch_factor` must be 1 or more, got {prefetch_factor}")
        if persistent_workers and num_workers == 0:
            raise ValueError("DataLoader: `persistent_workers` needs num_workers above 0")
        self._streams = isinstance(dataset, IterableDataset)
        if self._streams and (shuffle not in (None, False) or sampler is not None or batch_sampler is not None):
            raise ValueError("DataLoader: an IterableDataset decides its order itself; shuffle, sampler and batch_sampler are for indices")
        if sampler is not None and shuffle:
            raise ValueError("DataLoader: `sampler` and `shuffle` exclude each other")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("DataLoader: `batch_sampler` excludes batch_size, shuffle, sampler and drop_last")
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError("DataLoader: batch_size=None makes no batches, so drop_last cannot leave one out")
        if sampler is None:
            indices = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
            sampler = _InfiniteConstantSampler() if self._streams else indices
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset, self.batch_size, self.sampler, self.batch_sampler, self.drop_last = dataset, batch_size, sampler, batch_sampler, drop_last
        self.num_workers, self.persistent_workers = num_workers, persistent_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory, self.pin_memory_device, self.timeout = pin_memory, pin_memory_device, timeout
        self.worker_init_fn, self.generator, self.in_order = worker_init_fn, generator, in_order
        self.multiprocessing_context = multiprocessing_context
        self.collate_fn = collate_fn or (default_convert if batch_sampler is None else default_collate)
        self._told_length: Optional[int] = None  # of a stream
        self._iterator = None
        self._made = True
        self.check_worker_number_rationality()

    def __setattr__(self, name: str, value: Any) -> None:
        if self._made and name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"):
            raise ValueError(f"DataLoader: `{name}` cannot be set of a loader that is made; make another")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> Any:
        """How workers are started. TypeError for what is neither a word nor a context, ValueError for another word, and without workers."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, multiprocessing_context: Any) -> None:
        context, words = multiprocessing_context, multiprocessing.get_all_start_methods()
        if context is not None and not self.num_workers:
            raise ValueError(f"DataLoader: `multiprocessing_context` needs num_workers above 0, got {context!r} with none")
        if isinstance(context, str):
            if context not in words:
                raise ValueError(f"DataLoader: `multiprocessing_context` must be one of {words} or a context, got {context!r}")
            context = multiprocessing.get_context(context)
        if context is not None and not isinstance(context, multiprocessing.context.BaseContext):
            raise TypeError(f"DataLoader: `multiprocessing_context` must be one of {words} or a context, got {type(context).__name__}")
        self._context = context

    def check_worker_number_rationality(self) -> None:
        """Warns of more workers than this process may use cores."""
        cores = _usable_cores()
        if self.num_workers and cores is not None and self.num_workers > cores:
            warn(f"DataLoader: {self.num_workers} workers are more than the {cores} cores that this process may use, and can be slower than fewer")

    @property
    def _dataset_kind(self) -> int:
        return _DatasetKind.Iterable if self._streams else _DatasetKind.Map

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Iterable:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _get_iterator(self) -> _BaseDataLoaderIter:
        return _MultiProcessingDataLoaderIter(self) if self.num_workers else _SingleProcessDataLoaderIter(self)

    def __iter__(self) -> _BaseDataLoaderIter:
        if not self.persistent_workers:
            return self._get_iterator()
        last = self._iterator
        if last is not None and getattr(last, "_pool", None) is not None:
            try:
                last._reset(self)
            except BaseException:
                last.close()  # type: ignore[attr-defined]
                raise
            return last
        self._iterator = self._get_iterator()  # the first, or the last one's workers were ended by an error
        return self._iterator

    def __len__(self) -> int:
        if not self._streams:
            return len(self._index_sampler)  # type: ignore[arg-type]
        n = self._told_length = len(self.dataset)
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


__all__: List[str] = ["DataLoader", "Dataset", "default_collate", "default_convert", "get_worker_info"]

if not TYPE_CHECKING:
    __getattr__ = absent_from(__name__)
