"""The work of many programs, shared among processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from typing import Any, Iterator, List, Tuple

from .drawing import draw
from .known import explanation
from .program import script
from .running import check
from .shrink import shrunk

PATIENCE = 60  # seconds for one program


def load(device: str = "cpu") -> Tuple[Any, Any]:
    import torch
    import torch.utils.checkpoint

    import ampc

    torch.set_num_threads(1)
    ampc.set_num_threads(1)
    if device != "cpu":
        ampc.set_default_device("cuda")
    return torch, ampc


class TooLong(Exception):
    pass


def too_long(*_: Any) -> None:
    raise TooLong


def one(torch: Any, ampc: Any, seed: int, index: int, shrink: bool = True) -> Tuple[str, Any]:
    """("same", ""), ("known", reason) or ("differs", a report)."""
    program, expected = draw(torch, seed, index)
    d = check(program, torch, ampc, expected)
    if d is None:
        return "same", len(program.steps)
    reason = explanation(d)
    if reason is not None:
        return "known", reason
    small = shrunk(d, torch, ampc, explanation) if shrink else d
    return "differs", {"seed": seed, "index": index, "kind": small.kind, "line": small.step.source, "text": str(small), "script": script(small.program), "first": str(d)}


def part(seed: int, start: int, stop: int, step: int, device: str, shrink: bool, queue: Any, at: Any) -> None:
    torch, ampc = load(device)
    signal.signal(signal.SIGALRM, too_long)
    for index in range(start, stop, step):
        at.value = index
        signal.alarm(PATIENCE)
        try:
            result = one(torch, ampc, seed, index, shrink)
        except TooLong:
            result = "differs", {"seed": seed, "index": index, "kind": "too long", "line": "", "text": f"took more than {PATIENCE} s", "script": "", "first": ""}
        signal.alarm(0)
        queue.put((index, *result))
    at.value = -1


def torch_dies_alone(seed: int, index: int) -> bool:
    """Whether the program kills a process in which torch alone runs it, with the C library's checks of the heap where they are installed."""
    env = {**os.environ, "LD_PRELOAD": "libc_malloc_debug.so.0", "GLIBC_TUNABLES": "glibc.malloc.check=3"}
    again = [sys.executable, "-m", "fuzz", "--programs", "1", "--first", str(index), "--seed", str(seed), "--save", os.devnull]
    return subprocess.run(again, env=env, capture_output=True).returncode < 0


def results(seed: int, first: int, count: int, jobs: int, device: str, shrink: bool) -> Iterator[Tuple[int, str, Any]]:
    """Of each program. A process that dies is told as a difference, and another goes on behind the program it died of."""
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue() if jobs == 0 else context.Queue()
    running: List[Tuple[Any, Any]] = []

    def begin(start: int) -> None:
        at = context.Value("q", start)
        process = context.Process(target=part, args=(seed, start, first + count, jobs, device, shrink, queue, at), daemon=True)
        process.start()
        running.append((process, at))

    for job in range(jobs):
        begin(first + job)
    left = count
    while left > 0:
        try:
            yield queue.get(timeout=1)
            left -= 1
            continue
        except Exception:
            pass
        for process, at in list(running):
            if not process.is_alive():
                running.remove((process, at))
                if at.value >= 0:
                    index = at.value
                    if torch_dies_alone(seed, index):
                        yield index, "known", "torch's process ends of it, in torch alone"
                    else:
                        yield index, "differs", {"seed": seed, "index": index, "kind": "crash", "line": "", "text": f"the process ended with {process.exitcode}", "script": "", "first": ""}
                    left -= 1
                    if index + jobs < first + count:
                        begin(index + jobs)
        if not running and queue.empty():
            break
