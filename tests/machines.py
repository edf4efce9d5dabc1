"""One machine standing in for another."""

from contextlib import contextmanager
from typing import Iterator

import ampc


@contextmanager
def machine(l2_bytes: int, threads: int) -> Iterator[None]:
    """A machine with this second-level cache and so many threads; tensors made before keep what they have cached of the real one."""
    was, before = ampc._C._machine(), ampc.get_num_threads()
    ampc._C._pretend_machine(l2_bytes=l2_bytes)
    ampc.set_num_threads(threads)
    try:
        yield
    finally:
        ampc._C._pretend_machine(l2_bytes=was["l2_bytes"])
        ampc.set_num_threads(before)
