"""A store in a server of one process, to which others connect. What travels are lengths and bytes: nothing is unpickled."""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from datetime import timedelta
from typing import List, NoReturn, Optional, Sequence

from ._sockets import connected, receive_bytes, send_bytes, serve
from .errors import DistNetworkError, DistStoreError
from .stores import Answer, Shared, Store, fields, joined
from .work import seconds_of

JOINED = b"init/"  # the key that counts those that have connected
ANSWER = 10.0  # seconds that an answer takes at most, beside those that the operation waits
NOT_YET, GOOD, WRONG = b"n", b"g", b"w"
_servers: weakref.WeakValueDictionary[int, Server] = weakref.WeakValueDictionary()  # of this process, by port


class Server:
    """Runs the operations of its clients, each in a thread."""

    def __init__(self, port: int, descriptor: Optional[int] = None) -> None:
        self.shared = Shared()
        self._listener = socket.create_server(("", port)) if descriptor is None else socket.socket(fileno=descriptor)
        self._listener.listen(512)
        self.port = self._listener.getsockname()[1]
        serve(self._listener, self._serve, "ampc.distributed.TCPStore")

    def close(self) -> None:
        """Takes no more clients."""
        self._listener.close()

    def _serve(self, end: socket.socket) -> None:
        with end:
            try:
                while True:
                    operation, seconds, *args = fields(receive_bytes(end))
                    send_bytes(end, joined(self._answer(operation.decode(), args, float(seconds))))
            except (OSError, EOFError, ValueError, UnicodeDecodeError):  # it is gone, or speaks of something else
                return

    def _answer(self, operation: str, args: List[bytes], seconds: float) -> List[bytes]:
        try:
            answer = self.shared.run(operation, args, seconds)
        except (ValueError, TypeError, AttributeError) as error:
            return [WRONG, str(error).encode()]
        return [NOT_YET] if answer is None else [GOOD, *answer]


class TCPStore(Store):
    """A store in a server, which is in the process with ``is_master=True``.

    Args:
        host_name, port: of the server; with port 0 it takes a free one, see ``store.port``.
        world_size: how many stores connect to it, the master's among them. None: any number.
        timeout: how long a store waits for the server, and for keys.
        wait_for_workers: the master waits until ``world_size`` stores have connected.
        multi_tenant: a second master of this process and port shares the server of the first.
        master_listen_fd: a socket with an address, instead of the port.
        use_libuv: torch's, of no effect here.

    ValueError for a ``world_size`` of 0; DistNetworkError where the server cannot listen at the port, or is not reached in time; DistStoreError
    where not all connect. Whoever reaches the port reads and writes the store: it must be one of a trusted network."""

    def __init__(self, host_name: str, port: int, world_size: Optional[int] = None, is_master: bool = False,
                 timeout: timedelta = timedelta(seconds=300), wait_for_workers: bool = True, multi_tenant: bool = False,
                 master_listen_fd: Optional[int] = None, use_libuv: bool = True) -> None:
        seconds = seconds_of("TCPStore", timeout)
        if world_size == 0:
            raise ValueError("TCPStore: `world_size` must be how many stores connect to it, or None for any number, got 0")
        self.host, self.port, self.timeout = host_name, int(port), timeout
        self._server: Optional[Server] = None
        if is_master:
            try:
                self._server = _servers.get(self.port) if multi_tenant else None
                self._server = self._server or Server(self.port, master_listen_fd)
            except OSError as error:
                raise DistNetworkError(f"TCPStore: it cannot listen at port {port} ({error}); take a free port, or 0") from None
            self.port = self._server.port
            _servers[self.port] = self._server
        self._lock, self._process = threading.Lock(), 0
        self._now("add", JOINED, b"1")
        if is_master and wait_for_workers and world_size is not None and world_size > 0:
            self._wait_for(world_size, time.monotonic() + seconds, seconds)

    def _connect(self) -> socket.socket:
        seconds = self.timeout.total_seconds()

        def late(error: OSError) -> NoReturn:
            raise DistNetworkError(f"TCPStore: no server has been found at {self.host}:{self.port} within {seconds:g} s ({error}); one process "
                                   "makes the store with is_master=True") from None

        return connected("127.0.0.1" if self._server else self.host, self.port, seconds, late)

    def _wait_for(self, count: int, end: float, seconds: float) -> None:
        while (there := int(self._now("get", JOINED)[0])) < count:
            if time.monotonic() >= end:
                raise DistStoreError(f"TCPStore: {there} of {count} stores have connected within {seconds:g} s; each process makes one, with "
                                     "the host and port of the master's")
            time.sleep(0.01)

    def _do(self, operation: str, args: Sequence[bytes], seconds: float) -> Answer:
        with self._lock:
            if self._process != os.getpid():  # nor has a forked process its parent's connection
                self._end = self._connect()
            self._process = 0  # until its answer is here: after an error, or Ctrl-C, it could be taken for that of a later operation
            most, server = seconds + ANSWER, f"TCPStore: the server at {self.host}:{self.port}"
            try:
                self._end.settimeout(most)
                send_bytes(self._end, joined([operation.encode(), repr(seconds).encode(), *args]))
                kind, *answer = fields(receive_bytes(self._end))
            except socket.timeout:
                raise DistNetworkError(f"{server} has not answered within {most:g} s") from None
            except (OSError, EOFError) as error:
                raise DistNetworkError(f"{server} is gone ({error or 'it has closed the connection'})") from None
            self._process = os.getpid()
        if kind == WRONG:
            raise ValueError(answer[0].decode())
        return None if kind == NOT_YET else answer
