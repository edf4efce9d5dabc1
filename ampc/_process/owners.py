"""Who a file or folder belongs to, where that may be killed, so that nobody removes it: its name says the process, and the next one that makes such
a folder removes those whose processes run no more."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
import socket
import tempfile
from typing import Optional

from .stand_in import lives, process_of

_NAME = re.compile(r"ampc-[a-z]+-([0-9a-f]{12})-(\d+(?:-\d+)?)-.*", re.S)


@functools.cache
def machine() -> str:
    """A name for the machine or container that numbers processes, since its start. Process 12 of another one is not ours."""
    facts = [socket.gethostname()]
    try:
        facts.append(os.readlink("/proc/self/ns/pid"))
        with open("/proc/sys/kernel/random/boot_id") as f:
            facts.append(f.read())
    except OSError:  # not on this system
        pass
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]


def me() -> str:
    """This process, among those of all machines."""
    return f"{machine()}-{process_of(os.getpid())}"


def is_gone(owner: str) -> bool:
    """Whether a process by ``me()`` runs no more. One of another machine may, as far as is known here."""
    where, _, process = owner.partition("-")
    return where == machine() and not lives(process)


def new_folder(kind: str, within: Optional[str] = None) -> str:
    """A new folder for this user alone, ``ampc-<kind>-…`` in the folder for temporary files or in another one. What processes that are gone have left
    there is removed."""
    within = within or tempfile.gettempdir()
    with contextlib.suppress(OSError):
        for name in os.listdir(within):
            match = _NAME.fullmatch(name)
            if match and is_gone(f"{match[1]}-{match[2]}"):
                shutil.rmtree(os.path.join(within, name), ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"ampc-{kind}-{me()}-", dir=within)
