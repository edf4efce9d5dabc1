"""What test_distributed_meeting.py starts: ``python meeting_ranks.py CASE ADDRESS`` starts two plain processes, which no launcher of MPI knows. Each
prints a line."""

import multiprocessing
import os
import signal
import socket
import sys
import time
from datetime import timedelta

import ampc
import ampc.distributed as dist

SIZE = 2


def how(case, address, rank):
    """Arguments of init_process_group; variables are set."""
    if case == "env":
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(SIZE), MASTER_ADDR="127.0.0.1", MASTER_PORT=address)
        return {}
    if case == "slurm":
        os.environ.update(SLURM_PROCID=str(rank), SLURM_STEP_NUM_TASKS=str(SIZE), SLURM_LOCALID=str(rank), SLURM_STEP_NODELIST="localhost", SLURM_JOB_ID="7",
                          MASTER_PORT=address)
        return {}
    if case == "query":
        return {"init_method": f"tcp://127.0.0.1:{address}?rank={rank}&world_size={SIZE}"}
    if case == "store":
        return {"store": dist.TCPStore("127.0.0.1", int(address), SIZE, rank == 0), "rank": rank, "world_size": SIZE}
    return {"init_method": f"file://{address}" if case in ("file", "killed", "stale", "twice") else f"tcp://127.0.0.1:{address}", "rank": rank, "world_size": SIZE}


def main(case, address, rank):
    if case == "late":
        from ampc.distributed import _arrival

        _arrival.LEAST = 2.0
        if rank == 1:
            return
    if case == "twice":
        from ampc.distributed import _arrival

        _arrival.LEAST, rank = 3.0, 0
    if case == "stale" and rank == 0:
        time.sleep(1)  # the other one comes first
    if case == "dies" and rank == 1:
        from ampc.distributed import _mpi

        _mpi._drop_names = lambda MPI: os.kill(os.getpid(), signal.SIGKILL)
    if case == "hosts":
        socket.gethostname = lambda: f"node{rank}"
    options = how(case, address, rank)
    try:
        dist.init_process_group("gloo" if rank else "GLOO", timeout=timedelta(seconds=2 if case in ("late", "twice") else 60), **options)
    except (RuntimeError, AssertionError) as error:
        print(f"{rank} {type(error).__name__}: {error}\n", end="", flush=True)
        return
    if case == "killed":
        dist.barrier()
        os.kill(os.getpid(), signal.SIGKILL)
    found = []
    for again in range(2):  # the same processes may do it again
        x = ampc.full((3,), float(rank + 1))
        dist.all_reduce(x)
        found += [dist.get_rank(), dist.get_world_size(), x.tolist(), dist.get_backend()]
        dist.destroy_process_group()
        if not again:
            dist.init_process_group(**options)
    print(f"{found}\n", end="", flush=True)


if __name__ == "__main__":
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    context = multiprocessing.get_context("fork" if sys.argv[1] == "file" else "spawn")
    for case in ("killed", "stale") if sys.argv[1] == "stale" else sys.argv[1:2]:
        processes = [context.Process(target=main, args=(case, sys.argv[2], rank)) for rank in range(SIZE)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
