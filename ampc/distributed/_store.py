"""The start of groups without MPI, from the variables MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE that torchrun, Slurm and Kubernetes set.

Rank 0 listens, and the others connect to it. What travels here is small and made of JSON: ids of NCCL, what ranks call, who has failed. Values of
tensors and Python objects go by NCCL."""

from __future__ import annotations

import itertools
import json
import os
import queue
import socket
import threading
import time
from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple
from urllib.parse import urlsplit

from .._process import launcher as _launcher
from . import _ends, _sockets
from ._board import ended_without, last_begun, not_come
from .errors import DistBackendError, DistNetworkError

ANSWER = 1.0  # seconds in which the others may say what they are doing
LAST_PORT = 65535
_found: Dict[str, Any] = {}


# -- messages ----------------------------------------------------------------------------------------------------------


def _send(to: socket.socket, message: Any) -> None:
    _sockets.send_bytes(to, json.dumps(message).encode())


def _receive(of: socket.socket) -> Any:
    """The next message; None at the end of the connection, or for what is none."""
    try:
        return json.loads(_sockets.receive_bytes(of))
    except (OSError, EOFError, ValueError):
        return None


# -- rank 0 ------------------------------------------------------------------------------------------------------------


class Server:
    """Collects what the ranks say at a meeting, by its name, and tells each all of it once it has it of all. It also tells who is gone."""

    def __init__(self, port: int, size: int) -> None:
        self._size, self._lock = size, threading.Lock()
        self._ends: Dict[int, socket.socket] = {}  # by rank
        self._meetings: Dict[str, Tuple[List[int], Dict[int, Any]]] = {}  # ranks, and what those have said that came
        self._told: List[Any] = []  # what all ranks are told, for those that come later
        self._listener = socket.create_server(("", port), backlog=size)
        _sockets.serve(self._listener, self._serve, "ampc.distributed.store")

    def _serve(self, end: socket.socket) -> None:
        hello = _receive(end)
        if not isinstance(hello, dict) or not 0 <= hello.get("rank", -1) < self._size or hello.get("size") != self._size:
            wrong = f"{hello.get('rank')} of {hello.get('size')}" if isinstance(hello, dict) else "no rank"
            self._to(end, {"refused": f"rank 0 waits for {self._size} processes, and one says that it is rank {wrong}"})
            end.close()
            return
        rank = hello["rank"]
        with self._lock:
            if rank in self._ends:
                self._to(end, {"refused": f"there are two processes with the rank {rank}"})
                end.close()
                return
            self._ends[rank] = end
            for message in self._told:
                self._to(end, message)
        while (message := _receive(end)) is not None:
            self._take(rank, message)
        self._tell({"gone": rank})
        end.close()

    def _take(self, rank: int, message: Any) -> None:
        if "ask" in message or "to" in message:
            self._pass_on(rank, message)
            return
        if "key" not in message:  # of this rank to all
            self._tell({**message, "rank": rank})
            return
        key, ranks = message["key"], message["ranks"]
        with self._lock:
            _, there = self._meetings.setdefault(key, (ranks, {}))
            if "value" in message:
                there[rank] = message["value"]
            if len(there) == len(ranks):
                del self._meetings[key]
                for each in ranks:
                    self._to(self._ends[each], {"key": key, "values": [there[r] for r in ranks]})
            elif "value" not in message:
                self._tell_missing(key, [rank])

    def _pass_on(self, rank: int, message: Any) -> None:
        """A rank's question to all others, or an answer to one."""
        with self._lock:
            if "to" in message:
                self._to(self._ends[message["to"]], {**message, "rank": rank})
            else:
                for other, end in self._ends.items():
                    if other != rank:
                        self._to(end, {"asked": rank})

    def _tell_missing(self, key: str, waiting: List[int]) -> None:
        ranks, there = self._meetings[key]
        for rank in waiting:
            self._to(self._ends[rank], {"key": key, "missing": [r for r in ranks if r not in there]})

    def _tell(self, message: Any) -> None:
        with self._lock:
            self._told.append(message)
            for end in self._ends.values():
                self._to(end, message)

    @staticmethod
    def _to(end: socket.socket, message: Any) -> None:
        try:
            _send(end, message)
        except OSError:  # it is gone, which its own thread tells
            pass

    def close(self) -> None:
        """Listens no more. Who waits is told for whom."""
        self._listener.close()
        with self._lock:
            for key, (_, there) in self._meetings.items():
                self._tell_missing(key, list(there))


# -- every rank --------------------------------------------------------------------------------------------------------


class Client:
    """This process' connection to rank 0."""

    def __init__(self, host: str, port: int, rank: int, size: int, seconds: float) -> None:
        self.rank, self.size, self.seconds = rank, size, seconds
        self._end = self._connect(host, port)
        self._sending = threading.Lock()
        self._answers: Dict[str, queue.SimpleQueue[Any]] = {}
        self.gone: Dict[int, str] = {}  # of the ranks that failed or died, what happened; where another was the cause, what happened there
        self.left: Dict[int, Any] = {}  # ranks that take part in nothing any more, how far they came in each group, and what they began last
        self.lost = ""  # why there is no connection
        self.entered: Dict[str, int] = {}  # how far this process has come in each group,
        self.doing = ""  # and the last operation that it has begun
        self._said: Dict[int, Any] = {}  # the same of others, as they have answered
        self._send({"rank": rank, "size": size})
        threading.Thread(target=self._listen, name="ampc.distributed.store", daemon=True).start()

    def _connect(self, host: str, port: int) -> socket.socket:
        def late(error: OSError) -> NoReturn:
            raise DistNetworkError(f"init_process_group: rank {self.rank} has not found rank 0 at {host}:{port} within {self.seconds:g} s "
                                   f"({error}); MASTER_ADDR and MASTER_PORT must be those of rank 0's host, in all processes") from None

        return _sockets.connected(host, port, self.seconds, late)

    def _send(self, message: Any) -> None:
        try:
            with self._sending:
                _send(self._end, message)
        except OSError as error:
            self._lose(str(error))

    def _lose(self, why: str) -> None:
        self.lost = self.lost or self.what_is_gone() or why
        if 0 not in self.left:
            self.gone.setdefault(0, "rank 0 has died")

    def _listen(self) -> None:
        while (message := _receive(self._end)) is not None:
            if "refused" in message:
                self.lost = message["refused"]
            elif "key" in message:
                self._answers.setdefault(message["key"], queue.SimpleQueue()).put(message)
            elif "failed" in message:
                self.gone[message["rank"]] = message["failed"]
            elif "asked" in message:
                self._send({"to": message["asked"], "entered": self.entered, "doing": self.doing})
            elif "to" in message:
                self._said[message["rank"]] = message
            elif "left" in message:
                self.left[message["rank"]] = message
            elif "back" in message:
                self.left.pop(message["rank"], None)
            elif message["gone"] not in self.left:
                self.gone.setdefault(message["gone"], f"rank {message['gone']} has died")
        self._lose("the connection to rank 0 has ended")

    def what_is_gone(self, ranks: Optional[List[int]] = None) -> str:
        """What happened to those of the ranks that failed or died, each cause once."""
        return "; ".join(dict.fromkeys(what for rank, what in sorted(self.gone.items()) if ranks is None or rank in ranks))

    def tell(self, message: Any) -> None:
        """Tells all."""
        self._send(message)

    def ask(self, ranks: List[int]) -> Dict[int, Any]:
        """How far these ranks have come, of those that answer soon."""
        self._said = {}
        if not self.lost:
            self._send({"ask": True})
        end, others = time.monotonic() + ANSWER, set(ranks) - {self.rank, *self.gone, *self.left}
        while others - set(self._said) and not self.lost and time.monotonic() < end:
            time.sleep(0.01)
        return dict(self._said)

    def meet(self, key: str, ranks: List[int], value: Any, seconds: float, late: Callable[..., NoReturn]) -> List[Any]:
        """What each of the ranks says at this meeting. ``late(who, cause)`` raises where one has not come in time, is gone, or refused."""
        answers = self._answers.setdefault(key, queue.SimpleQueue())
        message: Dict[str, Any] = {"key": key, "ranks": ranks}
        self._send({**message, "value": value})
        end_by, asked = time.monotonic() + seconds, False
        while True:
            lost = self.lost  # before the look at answers, which come first
            try:
                answer = answers.get(timeout=0.02)
            except queue.Empty:
                answer = {}
            if "values" in answer:
                del self._answers[key]
                return answer["values"]
            if "missing" in answer:
                late(_named(answer["missing"]))
            gone = self.what_is_gone(ranks)
            if lost or (gone and not self.lost):
                late(lost or gone, gone)
            if time.monotonic() >= end_by + 5:
                late("rank 0 does not answer")
            if time.monotonic() >= end_by and not asked:
                asked = True
                self._send(message)

    def close(self) -> None:
        """Ends it."""
        self._end.close()


def _named(ranks: List[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))} {'have' if len(ranks) > 1 else 'has'} not come"


# -- what a group asks for, as of MPI ----------------------------------------------------------------------------------


class Board:
    """What is known of the other processes; ``_board.Board`` is that of processes of one host."""

    def __init__(self, client: Client) -> None:
        self._client, self._state = client, ""

    def here(self, ranks: List[int]) -> List[int]:
        """Of these the process that is known to be on this host."""
        return [self._client.rank]

    def enter(self, group: int, number: int, doing: str) -> None:
        """This process begins the operation ``number`` of a group."""
        self._client.entered[str(group)], self._client.doing = number, doing

    def meet(self, group: int, number: int, ranks: List[int], goes_on: Callable[[], bool]) -> None:
        """Nobody waits here."""

    def saves(self, file: int) -> List[int]:
        """Nothing is known of others' files."""
        return []

    def leave(self, ends: bool) -> None:
        """This process takes part in nothing any more, because it ends, or has destroyed its groups."""
        if self._state != "failed":
            self._state = "left"
            self._client.tell({"left": self._client.entered, "ends": ends, "doing": self._client.doing})

    def come_back(self) -> None:
        """It does again."""
        if self._state == "left":
            self._state = ""
            self._client.tell({"back": True})

    def fail(self, how: str, cause: str = "") -> None:
        """This process has failed, by a failure of another one where a cause is given; the first reason is kept."""
        if self._state != "failed":
            self._state = "failed"
            self._client.tell({"failed": (cause or f"rank {self._client.rank} {how}")[:1600]})

    def failed(self) -> bool:
        """Whether this process has."""
        return self._state == "failed"

    def all_know(self) -> bool:
        """Whether all others have failed, left or died."""
        return len({*self._client.gone, *self._client.left, self._client.rank}) >= self._client.size

    def is_next_to_go(self) -> bool:
        """Each process has a status of its own here."""
        return True

    def gone(self, ranks: List[int]) -> Optional[str]:
        """What has happened to those of these processes that failed or died; None where none did."""
        return self._client.what_is_gone([r for r in ranks if r != self._client.rank]) or None

    def ended_before(self, group: int, number: int, ranks: List[int]) -> Optional[str]:
        """Which of these processes has left without the operation ``number`` of the group; None where none has."""
        left = self._client.left
        missing = (r for r in ranks if r in left and left[r]["left"].get(str(group), 0) < number)
        return next((ended_without(r, left[r]["ends"], left[r]["doing"]) for r in missing), None)

    def missing(self, group: int, number: int, ranks: List[int]) -> str:
        """Which of these processes have not begun the operation ``number`` of the group, in words."""
        said, late = self._client.ask(ranks), []
        for rank in ranks:
            if rank == self._client.rank:
                continue
            if rank not in said:
                late.append(self._client.gone.get(rank, f"rank {rank} does not answer"))
            elif said[rank]["entered"].get(str(group), 0) < number:
                late.append(not_come(rank, said[rank]["doing"]))
        return "; ".join(late) or "all ranks have begun it, and the GPU of one does not answer"


class Comm:
    """Some of the processes. It has those methods of MPI's communicators that groups use for what is no data."""

    def __init__(self, client: Client, ranks: List[int], name: str) -> None:
        self._client, self._ranks, self._name, self._meetings, self._parts = client, ranks, name, itertools.count(), itertools.count()
        self.rank, self.size = ranks.index(client.rank), len(ranks)

    def allgather(self, value: Any) -> List[Any]:
        """Every rank's value, in each; of what JSON has. DistBackendError where one does not come within the timeout."""
        if self.size == 1:
            return [value]
        key = f"{self._name}:{next(self._meetings)}"
        return self._client.meet(key, self._ranks, value, self._client.seconds, self._late)

    def _late(self, who: str, cause: str = "") -> NoReturn:
        said = self._client.ask(self._ranks)
        last = "".join(f"; rank {rank}: {last_begun(there['doing'])}" for rank, there in sorted(said.items()))
        doing = self._client.doing or "init_process_group"
        raise DistBackendError(f"rank {self._client.rank} waits in {doing} for {self._client.seconds:g} s at most: {who}{last}", cause)

    def bcast(self, value: Any, root: int = 0) -> Any:
        """The root's value."""
        return self.allgather(value if self.rank == root else None)[root]

    def Dup(self) -> Comm:
        """Another one of the same processes. Collective."""
        return Comm(self._client, self._ranks, f"{self._name}/{next(self._parts)}")

    def part(self, members: List[int], tag: int) -> Comm:
        """One of some of the processes, which call it with one tag."""
        ranks = [self._ranks[i] for i in members]
        return Comm(self._client, ranks, f"{self._name}/of {ranks} by {tag}")


# -- the start ---------------------------------------------------------------------------------------------------------


def board() -> Board:
    """What is known of the other processes."""
    return _found["board"]


def agrees(comm: Comm, same: str) -> bool:
    """Whether all ranks say the same."""
    return len(set(comm.allgather(same))) == 1


def part(comm: Comm, members: List[int], tag: int) -> Comm:
    """A communicator of some of the processes."""
    return comm.part(members, tag)


def address(init_method: Optional[str]) -> Tuple[str, int]:
    """Host and port of rank 0, as tcp://host:port or variables say, also those of srun; '' and -1 where they are not said.
    ValueError for a port that is none."""
    _launcher.set_variables()
    host, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    if str(init_method).startswith("tcp://"):
        host, _, port = urlsplit(str(init_method)).netloc.rpartition(":")
    if not host or not port:
        return "", -1
    beside_torch = os.environ.get("TORCHELASTIC_USE_AGENT_STORE", "") == "True"  # torchrun itself listens at MASTER_PORT
    if not port.isdecimal() or int(port) + beside_torch > LAST_PORT:
        raise ValueError(f"init_process_group: the port, by MASTER_PORT or tcp://host:port, must be from 0 to {LAST_PORT - beside_torch}, "
                         f"got {port!r}")
    return host.strip("[]"), int(port) + beside_torch


def meeting_place(init_method: Optional[str], rank: int, size: int) -> Optional[Tuple[str, int, int, int]]:
    """Host and port of rank 0, this process' rank, and their number, as arguments or variables say; None where something is not said."""
    host, port = address(init_method)
    rank, size = said(rank, size)
    if rank <= 0 and size in (-1, 1):
        return "", 0, 0, 1
    if not host or rank < 0 or size < 1:
        return None
    if rank >= size:
        raise ValueError(f"init_process_group: the rank must be from 0 to {size - 1}, got {rank}")
    return host, port, rank, size


def said(rank: int, size: int) -> Tuple[int, int]:
    """This process' rank and their number by arguments, else by RANK and WORLD_SIZE or srun's variables; -1 for what is not said.
    ValueError for a variable that is no number."""
    _launcher.set_variables()
    return rank if rank >= 0 else _number("RANK"), size if size > 0 else _number("WORLD_SIZE")


def _number(name: str) -> int:
    text = os.environ.get(name) or "-1"
    if not text.removeprefix("-").isdecimal():
        raise ValueError(f"init_process_group: the variable {name} must be a number, got {text!r}")
    return max(int(text), -1)


def connect(where: Tuple[str, int, int, int], seconds: float) -> Comm:
    """Connects the processes. DistNetworkError that names the ranks which have not come in time."""
    host, port, rank, size = where
    server = None
    if "client" in _found:  # from groups before
        _found["times"] += 1
        return Comm(_found["client"], list(range(size)), f"world {_found['times']}")
    if size > 1 and rank == 0:
        try:
            server = Server(port, size)
        except OSError as error:
            raise DistNetworkError(f"init_process_group: rank 0 cannot listen at port {port} ({error}); set MASTER_PORT to a free one, in all "
                                   "processes") from None
    client = Client("127.0.0.1" if server else host, port, rank, size, seconds) if size > 1 else _Alone()

    def late(who: str) -> NoReturn:
        raise DistNetworkError(f"init_process_group: {size} processes shall meet at {host}:{port} within {seconds:g} s: {who}")

    comm = Comm(client, list(range(size)), "world")
    if size > 1:
        try:
            client.meet("start", list(range(size)), True, seconds, late)
        except DistNetworkError:
            _end(client, server)
            raise
    _found.update(board=Board(client), client=client, times=0)
    _ends.listen_to_the_end(_found["board"], size, lambda: _end(client, server))
    return comm


def _end(client: Client, server: Optional[Server]) -> None:
    if server is not None:
        server.close()
    client.close()


class _Alone(Client):
    """Of one process, which connects to nobody."""

    def __init__(self) -> None:
        self.rank, self.size, self.seconds, self.gone, self.left, self.lost = 0, 1, 0.0, {}, {}, ""
        self.entered, self.doing, self._said = {}, "", {}

    def ask(self, ranks: List[int]) -> Dict[int, Any]:
        """There is nobody."""
        return {}

    def tell(self, message: Any) -> None:
        """There is nobody."""

    def close(self) -> None:
        """There is nothing."""
