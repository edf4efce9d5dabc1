"""Forking while other threads are inside the core: the child computes, trains and frees as ever."""

import os
import subprocess
import sys
import textwrap

import pytest

CODE = """
import os, signal, sys, threading
import ampc

sys.setswitchinterval(1e-4)  # threads change places often, so that forks meet each of them everywhere
ampc.set_num_threads(2)


def allocate():
    return [ampc.empty(n) for n in (3, 50, 700, 9000, 120000)]

def train():
    w = ampc.randn(40, 40, requires_grad=True)
    with ampc.autocast("cpu"):
        loss = ampc.nn.functional.cross_entropy(ampc.randn(50, 40) @ w, ampc.randint(0, 40, (50,)))
    loss.backward()

def multiply():  # outside the GIL, with memory of its own, by several threads
    x = ampc.randn(160, 160)
    (x @ x).exp()
    x.bfloat16() @ x.bfloat16()

def factor():  # OpenBLAS, which has locks of its own
    a = ampc.eye(130, dtype=ampc.float64) * 3
    ampc.linalg.inv(a @ a)

WORK = [allocate, train, multiply, factor]

def child():
    signal.alarm(20)  # ends it where it hangs
    failed = 1
    try:
        for f in WORK:
            f()
        failed = 0
    finally:
        os._exit(failed)

def forever(f):
    while not over:
        f()

over = False
for f in WORK:
    f()
threads = [threading.Thread(target=forever, args=(f,)) for f in [*WORK, multiply]]
for t in threads:
    t.start()
statuses, running = [], []
try:
    for i in range(int(sys.argv[1])):
        pid = os.fork()
        if pid == 0:
            child()
        running.append(pid)
        if len(running) == 4:
            statuses.append(os.waitpid(running.pop(0), 0)[1])
    statuses += [os.waitpid(pid, 0)[1] for pid in running]
finally:
    over = True
for t in threads:
    t.join()
print(len(statuses), sum(s != 0 for s in statuses))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("forks", [5000 if "AMPC_EXAMPLES" in os.environ else 300])
def test_while_threads_work(forks):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(CODE), str(forks)], capture_output=True, text=True, timeout=900)
    assert done.stdout.split() == [str(forks), "0"], (done.stdout, done.stderr[-2000:])
