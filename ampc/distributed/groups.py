"""Groups of processes: ``init_process_group`` connects those that a launcher has started, ``new_group`` makes smaller ones."""

from __future__ import annotations

import itertools
import operator
import os
import time
import weakref
import zlib
from datetime import timedelta
from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple, Union

from .. import _C
from .._library_functions import default_pg_timeout
from .._library_functions import group as names
from .._messages.callers import warn
from .._process import launcher as _launcher
from . import _apart, _arrival, _ends, _gpus, _meeting, _mpi, _spawned, _store
from ._agreement import agree, submit
from ._backends import Backends, Ways
from ._shared import MOST, OPS, Shared, call_in_words, checksum_of
from .errors import DistBackendError
from .stores import Store
from .work import Message, Work, Worker, run_beside, seconds_of

_groups: Dict[Any, str] = {}  # the groups that this process is a member of, and their backends; torch's _pg_map
_made: weakref.WeakSet[Any] = weakref.WeakSet()  # all groups of this process, also those that have no name
PATIENCE = 30.0  # seconds after which a process that waits says for whom
FORKED = "a forked process takes no part in its parent's groups; start processes with the 'spawn' method, or fork before init_process_group()"
_last_number, _calls = [0], itertools.count(1)  # of a group that this process is in; of calls of new_group that all processes make


def _forked() -> None:
    """In a process that was forked: it would speak for the rank that it is forked from."""
    for group in _made:
        group._end(FORKED)


os.register_at_fork(after_in_child=_forked)


def _never(*call: Any) -> bool:
    """Of a group whose collectives cannot run at once."""
    return False


class ProcessGroup:
    """Some of the processes, each with a rank of its own in the group. ``init_process_group`` and ``new_group`` make them."""

    def __init__(self, start: Any, comm: Any, ranks: List[int], seconds: float, description: str, backends: Backends) -> None:
        self.backends = backends
        self.start, self.comm, self.ranks, self.seconds, self.group_desc = start, comm, ranks, seconds, description
        self.board = start.board()
        here = self.board.here(ranks)
        facts = comm.allgather((_last_number[0], len(here), here[0]))
        _last_number[0] = self.number = max(number for number, _, _ in facts) + 1  # the same in every process of the group
        self._mine, self._worker, self.barriers = comm.rank, Worker(), itertools.count()
        self._order = _C.Ranks(self, OPS)  # of its operations
        self.at_once: Callable[..., bool] = _never  # runs a collective in shared memory, where nothing is in the way
        self.checks = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() != "OFF"
        self.broken = ""  # why it cannot be used any more
        self._within, self._advice = "", ""  # what its operations are parts of, and what to do where a rank does not come to it
        self._call: Optional[Tuple[str, int, float]] = None  # the operation that runs in its caller's thread, and since when
        self._waits = 0, 0.0  # of one that runs at once and waits: its number, and since when
        self.shared: Optional[Shared] = None  # the memory of its processes of this host; None where each is alone on its host
        self.leaders: Any = None  # of several hosts: the communicator of the first process of each, MPI.COMM_NULL in others
        firsts = [first for _, _, first in facts]
        blocks = [len(list(ranks_there)) for _, ranks_there in itertools.groupby(firsts)]
        self.hosts = len(set(firsts))
        self.by_host = blocks if len(blocks) == self.hosts else []  # how many ranks each host has, where they stand together
        self.host, self.place_on_host = list(dict.fromkeys(firsts)).index(here[0]), here.index(ranks[comm.rank])
        if 1 < max(count for _, count, _ in facts) <= MOST:
            self._share(here)
        by_messages = start is _mpi and self.shared is None and 1 < comm.size <= _apart.MOST
        self.apart: Optional[_apart.Apart] = _apart.Apart(self, _mpi.start()) if by_messages else None  # where no two processes share memory
        if self.apart is not None and backends.cpu:
            self.at_once = self.apart.at_once
        self._twins: List[ProcessGroup] = []
        self.others = 0  # groups that new_group has made since, in all processes
        self._last = "nothing", 0
        self._has_told = self._has_warned = False
        self._ways = Ways(self, backends)
        _made.add(self)

    def rank(self) -> int:
        """This process' rank in the group."""
        return self._mine

    def size(self) -> int:
        """The number of its processes."""
        return len(self.ranks)

    def name(self) -> str:
        """'mpi', 'nccl', or for each kind of device: 'cpu:mpi,cuda:nccl'."""
        return self.backends.name()

    @property
    def group_name(self) -> str:
        """A name of its own, the same in every process."""
        return str(self.number)

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.group_desc} on {self.name()}, ranks {self.ranks}>"

    @property
    def own_rank(self) -> int:
        """This process' rank among all."""
        return self.ranks[self._mine]

    def _share(self, here: List[int]) -> None:
        host = self.comm.Split(here[0])
        try:
            shared: Optional[Shared] = Shared(host, self._order, self.checks, self.board.fields(self.number))
        except OSError:
            shared = None
        if all(self.comm.allgather(shared is not None)):
            self.shared = shared
            if len(here) < len(self.ranks):
                self.leaders = self.comm.Split(_mpi.start().UNDEFINED if host.rank else 0)
            elif self.backends.cpu:
                self.at_once = self._order.at_once

    @property
    def on_one_host(self) -> bool:
        """Whether all its processes share memory."""
        return self.shared is not None and self.leaders is None

    @property
    def between(self) -> int:
        """How many processes exchange values over MPI: the leaders, or all."""
        return self.size() if self.leaders is None else self.hosts

    # -- ways

    def way(self, what: str, *tensors: Any) -> Any:
        """What moves these tensors: ``OverNCCL`` where all are on a GPU, and the group takes NCCL for it, else ``OverMPI``. RuntimeError for
        tensors that the group has no backend for."""
        return self._ways.of(what, tensors)

    def way_of_barrier(self, device_ids: Any) -> Any:
        """What a barrier goes by."""
        return self._ways.of_barrier(device_ids)

    def begin(self, messages: List[Message]) -> List[Work]:
        """Begins messages, all together where they go by NCCL."""
        self.need(messages[0].what.split()[0])
        return self._ways.begin(messages)

    @property
    def device(self) -> str:
        """Where small messages of the package's own lie: on the CPU where the group takes its tensors, else on the current GPU."""
        return self._ways.device

    def objects(self, what: str, f: Callable[[Any], Any]) -> None:
        """Calls ``f(by)``, in which ``by.allgather``, ``gather``, ``bcast`` and ``scatter`` exchange Python objects, and waits for it."""
        self._ways.objects(what, f)

    # -- operations

    @property
    def last_number(self) -> int:
        """The number of the operation that was begun last."""
        return self._last[1]

    def within(self, what: str = "", advice: str = "") -> None:
        """From now on its operations are told as parts of ``what``, such as a backward pass; ``advice`` is added where a rank does not come to it."""
        self._within, self._advice = what, f"; {advice}" if advice else ""
        self._order.within(what.encode()[:119].decode(errors="ignore"))

    def told(self, what: str) -> str:
        """What an operation is for who waits for it."""
        return self._within or what

    def enter(self, what: str) -> None:
        """Notes an operation that the script's thread begins."""
        self._last = self.told(what), self._order.number()
        self.board.enter(self.number, self._last[1], self._last[0])

    def need(self, what: str) -> None:
        """DistBackendError after a failure."""
        if self.broken:
            raise DistBackendError(f"{what}: {self.broken}")

    def submit(self, what: str, f: Callable[[], Any], result: Any = None, finish: Optional[Callable[[], Any]] = None) -> Work:
        """Runs ``f`` after the operations before it; ``finish()`` runs in the thread that waits."""
        self.need(what.split()[0])
        number, what = self._order.give(), self.told(what)
        work = Work(self, what, number, result, finish)

        def run() -> None:
            board = self.board
            self._order.begin()
            try:
                board.enter(self.number, number, what)
                if not self.on_one_host:
                    board.meet(self.number, number, self.ranks, lambda: not self.broken)
                self.need(what)
                f()
            finally:
                self._order.end()

        self._last = what, number
        self._worker.put(work, run)
        return work

    def run_here(self, what: str, f: Callable[[], Any]) -> bool:
        """Runs ``f``, which waits in shared memory or by ``apart`` alone, in this thread; False where an operation before it has not ended."""
        self.need(what.split()[0])
        number = self._order.begin_here()
        if number == 0:
            return False
        what = self.told(what)
        try:
            self._call = what, number, time.monotonic()
            self.board.enter(self.number, number, what)
            f()
        finally:
            self._call = None
            self._order.end_here()
        return True

    # -- what the core calls, see csrc/python/ranks.c

    def _in_words(self, kind: int, numel: int, dtype: Any, op: Any, root: int) -> Tuple[int, str]:
        """A collective that runs at once: the number that stands for it in the comparison of calls, and its text."""
        text = call_in_words(kind, numel, dtype.name, op, root)
        return checksum_of(text), text

    def _wait(self, what: str = "", number: int = 0) -> None:
        """Called now and then while this process waits in shared memory or for a message, for a collective that runs at once with its text and
        number. In the worker's thread it is the caller of ``Work.wait`` that finds out who is missing."""
        self.need("wait")
        if what and self._waits[0] != number:
            self._waits = number, time.monotonic()
        call = (what, *self._waits) if what else self._call
        if call is not None:
            what, number, begin = call
            self.look_around(what, number, time.monotonic() - begin)
            if time.monotonic() - begin >= self.seconds:
                self.give_up(what, number, self.seconds)

    def _lose(self, error: BaseException, what: str = "") -> None:
        """An operation has ended half way."""
        if not self.broken:
            running = what or (self._call or self._last)[0]
            self._end(f"rank {self.ranks[self._mine]} has left {running} half way: {type(error).__name__}: {error}")
            self.board.fail(f"has failed: {self.broken}")

    def _differ(self, text: str, t: Any = None) -> NoReturn:
        """RuntimeError, which says what each process has called."""
        shape = "" if t is None else f", shape {list(t.shape)}"
        said = self.comm.allgather(text + shape)
        raise RuntimeError("the ranks do not agree: " + "; ".join(f"rank {self.ranks[i]} calls {text}" for i, text in enumerate(said)))

    def _end(self, why: str) -> None:
        """It cannot be used any more."""
        self.broken, self.at_once = why, _never

    def _look_at_the_last(self) -> None:
        self.look_around(*self._last)

    def look_around(self, what: str, number: int, waited: float = 0) -> None:
        """DistBackendError where a process of the group can take part in the operation no more. A warning, once, where this one has waited long."""
        board = self.board
        gone = board.gone(self.ranks)
        ended = board.ended_before(self.number, number, self.ranks) if gone is None and number else None
        if gone or ended:
            self._break(f"rank {self.own_rank} waits in {what}: {gone or ended}{self._advice if ended else ''}", gone or ended or "")
        if waited >= PATIENCE and number and not self._has_warned:
            self._has_warned = True
            warn(f"rank {self.own_rank} has waited {waited:.0f} s in {what}: {board.missing(self.number, number, self.ranks)}{self._advice}. "
                 f"It waits for {self.seconds:g} s, and then fails")

    def give_up(self, what: str, number: int, seconds: float) -> NoReturn:
        """DistBackendError that names who is missing."""
        missing = self.board.missing(self.number, number, self.ranks) if number else "the other rank has not answered"
        self._break(f"{what} has not ended within {seconds:g} s: {missing}{self._advice}")

    def _break(self, why: str, cause: str = "") -> NoReturn:
        self._end(why)
        self.board.fail(f"has failed: {why}", cause)
        raise DistBackendError(why, cause)

    def fail(self, why: str) -> NoReturn:
        """Ends the use of the group with a DistBackendError, of which the other processes learn."""
        self._break(why)

    def tell_once(self) -> bool:
        """Whether nobody has asked this before: the error of a group is told by one."""
        first, self._has_told = not self._has_told, True
        return first

    def pair(self, partner: int) -> ProcessGroup:
        """A group of this process and another one of this group, by its rank here. Both must call it."""
        members = sorted((self._mine, partner))
        tag = (members[0] * self.size() + members[1]) % 30000
        return self._part(members, tag, [self.ranks[i] for i in members], self.seconds, "a pair", self.backends)

    def _part(self, members: List[int], tag: int, ranks: List[int], seconds: float, description: str, backends: Backends) -> ProcessGroup:
        """A group of some of its processes, which alone call it."""
        def make() -> ProcessGroup:
            return ProcessGroup(self.start, self.start.part(self.comm, members, tag), ranks, seconds, description, backends)

        return run_beside(self, f"connecting {description}", make)

    def twin(self, description: str) -> ProcessGroup:
        """A group of the same processes whose operations run beside this one's. All of them must call it."""
        self.need(description)
        def make() -> None:
            self._twins.append(ProcessGroup(self.start, self.comm.Dup(), self.ranks, self.seconds, description, self.backends))

        self.submit(f"connecting {description}", make).wait()
        return self._twins[-1]

    def stop(self) -> None:
        """Ends its thread, and those of its twins. DistBackendError while an operation runs."""
        for group in (*self._twins, *self._ways.pairs(), self):
            if not group.broken:
                group._ways.stop()
                group._worker.stop(group.seconds, group._look_at_the_last)
                group.apart = None
            group._end("the group was destroyed")
            group._order.unshare()
            group.shared = None


# -- the group of all --------------------------------------------------------------------------------------------------


def is_available() -> bool:
    """Whether groups can be made: mpi4py is installed, or NCCL found."""
    return is_mpi_available() or is_nccl_available()


def is_mpi_available() -> bool:
    """Whether mpi4py is installed."""
    return _mpi.is_installed()


def is_nccl_available() -> bool:
    """Whether NCCL is found, and a GPU for it."""
    return not _gpus.why_no_nccl()


def is_backend_available(backend: str) -> bool:
    """Whether ``init_process_group`` takes this backend."""
    name = str(backend).lower()
    return is_nccl_available() if name == "nccl" else name in ("mpi", "gloo") and is_mpi_available()


def is_initialized() -> bool:
    """Whether ``init_process_group`` was called."""
    return names.WORLD is not None


def _check_size(MPI: Any, world_size: int, rank: int) -> None:
    """RuntimeError where the processes that MPI knows are not those that the script or its launcher speaks of."""
    comm = MPI.COMM_WORLD
    wanted = world_size if world_size >= 0 else int(os.environ.get("WORLD_SIZE") or _launcher.size() or comm.size)
    if wanted != comm.size:
        slurm = ("; under srun MPI needs Slurm's help: Open MPI `srun --mpi=pmix`, MPICH `srun --mpi=pmi2`; `srun --mpi=list` says what this Slurm "
                 "has, and the commands before need neither in a job's script" if _launcher.is_srun() else "")
        raise RuntimeError(f"init_process_group: {wanted} processes are asked for, and MPI has started {comm.size}; start them with "
                           f"`ampc run --nproc {wanted} script.py` or `mpiexec -n {wanted} ampc run script.py`{slurm}")
    if rank >= 0 and rank != comm.rank:
        raise RuntimeError(f"init_process_group: `rank` is {rank}, and MPI says {comm.rank}; leave it out, or take it from the variable RANK")


def init_process_group(backend: Optional[str] = None, init_method: Optional[str] = None, timeout: Optional[timedelta] = None, world_size: int = -1,
                       rank: int = -1, store: Any = None, group_name: str = "", pg_options: Any = None, device_id: Any = None) -> None:
    """Connects the processes; each must call it. ``ampc run --nproc``, mpiexec or ``multiprocessing.spawn`` has started them, or they are on one
    host and say here where they meet.

    Args:
        backend: 'mpi', 'nccl', which takes tensors of GPUs alone, or None: MPI, and NCCL for tensors of GPUs where all processes have it, and
            a GPU each. 'cpu:mpi,cuda:nccl' names both. 'gloo' means MPI here; ``get_backend`` says 'gloo' then.
        init_method: None or 'env://', which reads MASTER_ADDR and MASTER_PORT, 'tcp://host:port' or 'file://path': where processes meet that
            MPI's launcher has not started. '?rank=0&world_size=2' at its end says these two.
        timeout: how long an operation waits for other processes before it is an error; 30 minutes by default.
        world_size, rank: checked against the launcher's. Other processes must give them, or set RANK and WORLD_SIZE.
        device_id: the GPU of this process, which becomes the current one.
        store: a Store, in place of `init_method`. With it `world_size` and `rank` must be given.
        group_name, pg_options: torch's, of no effect here.

    ValueError when called twice, and for another backend, method or store; RuntimeError where MPI has started another number of
    processes, where processes without its launcher are on several hosts, or NCCL is not found; DistNetworkError without mpi4py, or where
    processes do not come within `timeout`, or 10 s where that is less; DistBackendError in a process that was forked from one which has called it."""
    _ends.listen_to_errors()
    if is_initialized():
        raise ValueError("init_process_group: the group is there already; destroy_process_group() comes before another")
    if _ends.is_forked():  # as which it would take its parent's messages
        raise DistBackendError(f"init_process_group: {FORKED}")
    rank, world_size = _meeting.told_by(init_method, rank, world_size)
    backends = Backends.of(backend, rank)
    _check_meeting(init_method, store, world_size, rank)
    seconds = seconds_of("init_process_group", default_pg_timeout if timeout is None else timeout)
    if device_id is not None:
        from ..cuda import set_device

        set_device(device_id)
    start, comm, backends = _connected(backends, init_method, store, rank, world_size, seconds)
    start.board().come_back()
    names.WORLD = _arrival.in_time(lambda: ProcessGroup(start, comm, list(range(comm.size)), seconds, "default", backends), seconds)
    _ends.before_the_end = _destroy_what_is_left
    _groups[names.WORLD] = backends.asked()


def _check_meeting(init_method: Optional[str], store: Any, world_size: int, rank: int) -> None:
    """ValueError for another method than torch's, or another store, or one without this process' rank."""
    if init_method not in (None, "env://") and not str(init_method).startswith(("tcp://", "file://")):
        raise ValueError(f"init_process_group: `init_method` must be 'env://', 'tcp://host:port' or 'file://…', got {init_method!r}; MPI or the "
                         "variables of a launcher connect the processes, so leave it out")
    if store is not None and (not isinstance(store, Store) or init_method is not None or world_size < 1 or rank < 0):
        raise ValueError(f"init_process_group: `store` must be a Store, with `world_size` and `rank` and without `init_method`, got "
                         f"{type(store).__name__}, {world_size}, {rank} and {init_method!r}")


def _connected(backends: Backends, init_method: Optional[str], store: Any, rank: int, size: int, seconds: float) -> Tuple[Any, Any, Backends]:
    """By MPI, whose launcher has started the processes or can connect them, else by variables, where NCCL is all that is asked for or all that
    there is."""
    if (_launcher.rank_of_mpi() is None or not _mpi.is_installed()) and backends.can_be_nccl_alone():
        where = _store.meeting_place(init_method, rank, size)
        if where is not None and (backends.is_nccl_alone() or (where[3] > 1 and not _spawned.can_connect() and is_nccl_available())):
            backends.need_nccl()
            return _store, _store.connect(where, seconds), backends.nccl_alone()
    _spawned.become_rank(rank, size, seconds, init_method, store)
    _arrival.meet(seconds)
    MPI = _mpi.start(seconds)
    _check_size(MPI, size, rank)
    if backends.is_nccl_alone():
        backends.need_nccl()
    return _mpi, _arrival.in_time(MPI.COMM_WORLD.Dup, seconds), backends


def destroy_process_group(group: Optional[ProcessGroup] = None) -> None:
    """Ends a group, and without one all of them; nothing where this process is no member. ValueError for what is no group, or no longer.
    DistBackendError where an operation has failed, after which the group is gone, or still runs."""
    if group is None or group is names.WORLD:
        members = list(_groups)
    elif group in _groups:
        members = [group]
    elif group is names.NON_GROUP_MEMBER:
        return
    else:
        raise ValueError("destroy_process_group: expected a group that new_group has made and that is not destroyed yet")
    errors = []
    for member in members:
        try:
            member.stop()
        except DistBackendError as error:
            errors.append(error)
        if member.broken:
            del _groups[member]
    if names.WORLD is not None and names.WORLD not in _groups:
        names.WORLD.board.leave(ends=False)
        names.WORLD = None
    if errors:
        raise errors[0]


def _destroy_what_is_left() -> None:
    """At the end of the process: what runs is waited for."""
    if names.WORLD is not None:
        destroy_process_group()


def group_of(what: str, group: Any = None) -> ProcessGroup:
    """The group that is meant: None is that of all processes. ValueError where there is none yet, or for what is no group."""
    if group is None:
        if names.WORLD is None:
            raise ValueError(f"{what}: the default process group has not been initialized; call init_process_group() first")
        return names.WORLD
    if not isinstance(group, ProcessGroup):
        raise ValueError(f"{what}: `group` must be a ProcessGroup or None, got {type(group).__name__}")
    return group


def _get_default_group() -> ProcessGroup:
    """The group of all processes. ValueError where there is none yet."""
    return group_of("_get_default_group")


def is_member(group: Any) -> bool:
    """Whether this process is in the group; what ``new_group`` gives to others says it is not."""
    return group is not names.NON_GROUP_MEMBER


def is_stranger(group: Any) -> bool:
    """Whether this process is not in the group; torch's ``_rank_not_in_group``."""
    return not is_member(group)


def get_rank(group: Any = None) -> int:
    """This process' rank in the group; -1 where it is no member. ValueError without a group."""
    return group_of("get_rank", group).rank() if is_member(group) else -1


def get_world_size(group: Any = None) -> int:
    """The number of processes of the group; -1 where this one is no member. ValueError without a group."""
    return group_of("get_world_size", group).size() if is_member(group) else -1


def is_one_of_several(group: Any = None) -> bool:
    """Whether this process is in a group of several."""
    return (group is not None or is_initialized()) and get_world_size(group) > 1


def get_backend(group: Any = None) -> str:
    """'mpi', or 'gloo' where the script has called MPI so, 'nccl', or 'cpu:mpi,cuda:nccl'. ValueError without a group."""
    return group_of("get_backend", group).name()


def get_process_group_ranks(group: Any = None) -> List[int]:
    """The ranks in the group of all, in the order of the ranks in this one."""
    return list(group_of("get_process_group_ranks", group).ranks)


def get_global_rank(group: Any, group_rank: int) -> int:
    """The rank in the group of all. ValueError for a rank that the group does not have."""
    ranks = group_of("get_global_rank", group).ranks
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"get_global_rank: the group has the ranks 0 to {len(ranks) - 1}, got {group_rank}")
    return ranks[group_rank]


def get_group_rank(group: Any, global_rank: int) -> int:
    """The rank in the group. ValueError for a process that is no member."""
    ranks = group_of("get_group_rank", group).ranks
    if global_rank not in ranks:
        raise ValueError(f"get_group_rank: rank {global_rank} is not in the group, which has the ranks {ranks}")
    return ranks.index(global_rank)


def others_that_saved(path: str) -> List[int]:
    """The other ranks of this host whose last saved file was this one; none without a group. This process saves it now."""
    if not is_initialized():
        return []
    return group_of("others_that_saved").board.saves(zlib.crc32(os.path.realpath(path).encode()) + 1)


def says_first(text: str) -> bool:
    """Whether this process is the first of its host that says this; True without a group."""
    return not is_initialized() or group_of("says_first").board.says_first(zlib.crc32(text.encode()) + 1)


def get_node_local_rank(fallback_rank: Optional[int] = None) -> int:
    """LOCAL_RANK. RuntimeError where it is not set, unless ``fallback_rank`` is given."""
    if os.environ.get("LOCAL_RANK"):
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError("get_node_local_rank: LOCAL_RANK is not set; `ampc run` sets it")


def is_torchelastic_launched() -> bool:
    """False."""
    return False


def new_group(ranks: Optional[List[int]] = None, timeout: Optional[timedelta] = None, backend: Optional[str] = None, pg_options: Any = None,
              use_local_synchronization: bool = False, group_desc: Optional[str] = None, device_id: Any = None) -> Union[ProcessGroup, int]:
    """A group of some of the processes. All processes must call it, in the same order, those that are no members, too; these get
    ``GroupMember.NON_GROUP_MEMBER``. With ``use_local_synchronization`` only members call it. ``pg_options`` and ``device_id`` are torch's for
    other backends. ValueError for ranks that there are not; RuntimeError in every process where they call it for different ranks, which says
    what each has called."""
    world = group_of("new_group")
    world.need("new_group")
    backends = world.backends if backend is None else Backends.of(backend)
    if not backends.is_nccl_alone() and world.start is _store:
        raise RuntimeError(f"new_group: the processes are connected without MPI, which backend={backend!r} needs; start them with `ampc run --nproc`")
    try:
        members = list(range(world.size())) if ranks is None else sorted(map(operator.index, ranks))
    except TypeError:
        raise TypeError(f"new_group: `ranks` must be a list of ints, got {ranks!r}") from None
    if not members or len(set(members)) != len(members) or not all(0 <= r < world.size() for r in members):
        raise ValueError(f"new_group: `ranks` must be different ranks from 0 to {world.size() - 1}, got {ranks}")
    seconds = world.seconds if timeout is None else seconds_of("new_group", timeout)
    if use_local_synchronization:
        tag = zlib.crc32(repr(members).encode()) % 30000
    else:
        same = f"new_group of ranks {members}"
        submit(world, False, same, lambda: agree(world, same), None, None, here=world.on_one_host)
        world.others += 1
        tag = 30000 + next(_calls) % 30000  # once all have agreed: an error leaves the count the same in all
    if world.rank() not in members:
        return names.NON_GROUP_MEMBER
    made = world._part(members, tag, members, seconds, group_desc or f"group of {len(members)}", backends)
    _groups[made] = backends.asked()
    return made
