"""Connections of TCP, and messages through them: bytes after their length."""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import Any, Callable, NoReturn

MOST_BYTES = 1 << 30  # of a message; a longer one is of somebody who speaks of something else


def without_delay(end: socket.socket) -> socket.socket:
    """The connection, whose small messages leave without delay."""
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return end


def connected(host: str, port: int, seconds: float, late: Callable[[OSError], NoReturn]) -> socket.socket:
    """A connection, tried again until ``seconds`` are over. Then ``late`` raises."""
    end_by = time.monotonic() + seconds
    while True:
        try:
            end = socket.create_connection((host, port), timeout=max(0.1, end_by - time.monotonic()))
            end.settimeout(None)
            return without_delay(end)
        except OSError as error:
            if time.monotonic() >= end_by:
                late(error)
        time.sleep(0.02)


def serve(listener: socket.socket, answer: Callable[[socket.socket], Any], name: str) -> None:
    """Accepts connections until the listener is closed, in a thread; ``answer(connection)`` runs in one of its own for each."""

    def run(f: Callable[..., Any], *args: Any) -> None:
        threading.Thread(target=f, args=args, name=name, daemon=True).start()

    def accept() -> None:
        while True:
            try:
                end, _ = listener.accept()
            except OSError:
                return
            run(answer, without_delay(end))

    run(accept)


def send_bytes(to: socket.socket, data: bytes) -> None:
    """Sends a message."""
    to.sendall(struct.pack("<I", len(data)) + data)


def receive_bytes(of: socket.socket) -> bytes:
    """The next message. EOFError at the end of the connection, or for what is none."""
    length = struct.unpack("<I", _bytes(of, 4))[0]
    if length > MOST_BYTES:
        raise EOFError
    return _bytes(of, length)


def _bytes(of: socket.socket, count: int) -> bytes:
    got = bytearray()
    while len(got) < count:
        part = of.recv(count - len(got))
        if not part:
            raise EOFError
        got += part
    return bytes(got)
