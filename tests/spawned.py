"""What test_distributed_training.py has spawned: ``python spawned.py CASE``."""

import os
import signal
import sys
import time
from datetime import timedelta

import ampc
import ampc.distributed as dist
import ampc.multiprocessing as mp


def sums(rank, size, queue):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29511", rank=rank, world_size=size)
    x = ampc.full((3,), float(rank + 1))
    dist.all_reduce(x)
    queue.put((rank, dist.get_rank(), dist.get_world_size(), x.tolist()))
    dist.destroy_process_group()


def by_variables(rank, size):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="localhost", MASTER_PORT="29512")
    dist.init_process_group()
    assert dist.get_rank() == rank
    dist.barrier()


def fails(rank, how):
    dist.init_process_group(rank=rank, world_size=2, timeout=timedelta(seconds=20))
    dist.barrier()
    if rank == 1:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exit":
            sys.exit(3)
        raise ValueError("a bad batch")
    dist.all_reduce(ampc.ones(3))


def late(rank):
    from ampc.distributed import _arrival

    _arrival.LEAST = 3.0
    if rank == 1:
        time.sleep(30)
    dist.init_process_group(rank=rank, world_size=2, timeout=timedelta(seconds=1))


def nobody(rank):
    dist.init_process_group()


def others(rank, size):
    dist.init_process_group(rank=rank, world_size=size)


def no_program(rank):
    from ampc._process import launcher as _launcher

    _launcher.mpiexec = lambda: None
    dist.init_process_group(rank=rank, world_size=2)


def broken_program(rank):
    from ampc._process import launcher as _launcher

    _launcher.command = lambda size, program: [sys.executable, "-c", "import sys; sys.exit('there are not enough slots')"]
    _launcher.is_open_mpi = lambda program: True
    dist.init_process_group(rank=rank, world_size=2)


def main(case):
    if case == "sums":
        for size, method in ((2, "spawn"), (4, "fork"), (2, "forkserver")):
            queue = mp.get_context(method).SimpleQueue()
            mp.start_processes(sums, (size, queue), size, start_method=method)
            found = sorted(queue.get() for _ in range(size))
            assert found == [(r, r, size, [size * (size + 1) / 2] * 3) for r in range(size)], found
        mp.spawn(by_variables, (2,), 2)
    else:
        f, args = {"raise": (fails, ("raise",)), "kill": (fails, ("kill",)), "exit": (fails, ("exit",)), "late": (late, ()), "nobody": (nobody, ()), "others": (others, (3,)),
                   "no program": (no_program, ()), "broken program": (broken_program, ())}[case]
        mp.spawn(f, args, 2)
    print("all is well")


if __name__ == "__main__":
    main(sys.argv[1])
