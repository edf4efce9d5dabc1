"""What test_distributed_nccl.py runs in several processes, each with a simulated GPU: ``nccl_ranks.py FOLDER BACKEND`` runs every program of
``ranks`` below. The processes are started by mpiexec, or by variables alone."""

import gc
import sys
import time
from datetime import timedelta
from pathlib import Path

import ranks
import sharded_checkpoints  # noqa: F401  adds its programs to those of sharded_training
import sharded_offload  # noqa: F401
import sharded_training
from distributed_training import made, trained
from fully_sharded import Tower, sharded, steps_of
from ranks import raised
from sharded_training import Zero, close

import ampc
import ampc.distributed as dist
from ampc import nn
from ampc.distributed.fsdp import fully_shard
from ampc.nn.parallel import DistributedDataParallel as DDP

PROGRAMS = {}
SHARED = {  # with the CPU's tests: by their module's programs
    "ranks": """reductions_of_all_dtypes values_move tensors_that_do_not_lie_in_a_row a_collective_is_a_write parts_of_other_sizes objects_move
        groups ranks_that_do_not_agree ddp_is_one_process_on_the_joined_batch no_sync_adds_up unused_parameters modules_that_differ
        buffers_are_rank_0s hooks_send_gradients an_overflow_on_one_rank_skips_everywhere a_bad_loss_on_one_rank_keeps_every_scale
        scales_that_differ parameters_of_sixteen_bits batch_norm_over_all_ranks""",
    "sharded_training": """zero_is_ddp zero_keeps_its_share_of_the_state zero_saves_and_loads zero_with_a_scaler
        join_with_buffers_accumulation_and_a_scaler neighbours_keep_the_whole_together what_a_sharded_module_is memory_of_a_rank
        fully_shard_with_a_scaler the_norm_is_of_all_rows dtypes_by_policy the_next_group_is_gathered_ahead replicas_of_shards
        shards_in_the_hosts_memory shards_in_the_hosts_memory_with_a_scaler what_fully_shard_refuses state_dicts_of_optimizers checkpoints_of_several_processes"""}
for module in (ranks, sharded_training):
    PROGRAMS.update({name: module.PROGRAMS[name] for name in SHARED[module.__name__].split()})


def program(*sizes):
    return ranks.ranks(*sizes, programs=PROGRAMS)


# -- collectives -------------------------------------------------------------------------------------------------------


@program(2, 4)
def messages(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    sent, got = ampc.full((200_000,), rank, dtype=ampc.int64), ampc.empty(200_000, dtype=ampc.int64)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, right), dist.P2POp(dist.irecv, got, left)])
    assert all(w.wait() for w in works) and int(got.max()) == int(got.min()) == left and works[1].source_rank() == left
    x = ampc.zeros(3, 2).t()
    if rank == 0:
        dist.send(ampc.full((2, 3), 5.0), 1, tag=7)
        dist.recv(x, 1)
    elif rank == 1:  # the others have nothing to do with it
        assert dist.recv(x, 0, tag=7) == 0 and x.tolist() == [[5.0] * 3] * 2
        dist.send(x * 2, 0)
    assert rank != 0 or x.tolist() == [[10.0] * 3] * 2
    raised(ValueError, "is this process itself", dist.send, x, rank)
    raised(ValueError, "the sender must be named", dist.irecv, x)


# -- beside each other ---------------------------------------------------------------------------------------------------


def unchecked():
    group = dist.new_group()
    dist.all_reduce(ampc.ones(1), group=group)
    group.checks = False  # as a DistributedDataParallel's own: nobody waits for the others to call
    return group


def others_wait(path, rank):
    """Rank 1 goes on when rank 0 has said so."""
    while rank and not path.exists():
        time.sleep(0.01)


@program(2)
def work_of_a_gpu_goes_on_meanwhile(rank, size):
    group, said = unchecked(), Path(sys.argv[1], "go_on")
    others_wait(said, rank)
    x = ampc.full((1000,), float(rank + 1))
    works = [dist.all_reduce(x, group=group, async_op=True) for _ in range(3)]
    y = (ampc.ones(10) * 3).sum()
    assert y.item() == 30  # the current stream does not wait for the collectives
    if rank == 0:
        assert not works[0].is_completed() and not works[2].is_completed()
        said.write_text("")
    z = ampc.ones(1000)
    assert works[2].wait()  # nor does the host: the stream does
    z += x
    assert float(z[0]) == 13.0 and all(w.is_completed() and w.is_success() for w in works)
    assert works[0].get_future().then(lambda f: f.value()[0] / 2).wait()[0].item() == 6.0
    y = ampc.empty(4)
    work = dist.all_gather_into_tensor(y, ampc.full((2,), float(rank)), async_op=True)
    assert work.wait(timedelta(seconds=20)) and y.tolist() == [0, 0, 1, 1]


@program(2)
def memory_is_kept_until_its_stream_is_done(rank, size):
    group, said = unchecked(), Path(sys.argv[1], "kept")
    others_wait(said, rank)
    x = ampc.full((50_000,), float(rank + 1))
    y = ampc.empty(100_000)
    work = dist.all_gather_into_tensor(y, x, group=group, async_op=True)
    address = x.data_ptr()
    del x
    if rank == 0:  # rank 1's collective is done as soon as it has begun
        assert ampc.full((50_000,), 9.0).data_ptr() != address
        said.write_text("")
    work.wait()
    assert y[:1].item() == 1.0 and y[-1].item() == 2.0


@program(2)
def a_script_stream_is_waited_for(rank, size):
    stream = ampc.cuda.Stream()
    with ampc.cuda.stream(stream):
        x = ampc.ones(1000) * (rank + 1)
        dist.all_reduce(x)
        y = x * 2
    stream.synchronize()
    assert float(y[0]) == 6.0


# -- training ------------------------------------------------------------------------------------------------------------


def on_the_cpu(f):
    """What ``f`` gives with the CPU as the default device."""
    before = ampc.get_default_device()
    ampc.set_default_device("cpu")
    try:
        return f()
    finally:
        ampc.set_default_device(before)


def one_process():
    """Losses and parameters of a model in one process, on the CPU."""
    model = made(Tower)
    return trained(model, 5, optimizer=ampc.optim.AdamW(model.parameters(), lr=0.02))


@program(2, 4)
def training_on_gpus_is_one_process_on_the_cpu(rank, size):
    want = on_the_cpu(one_process)
    for zero in (False, True):
        model = DDP(made(Tower), device_ids=[rank])
        optimizer = Zero(model.parameters(), ampc.optim.AdamW, lr=0.02) if zero else None
        close(steps_of(model, rank, size, optimizer)[1], want)
    for options in ({}, {"reshard_after_forward": True}, {"reshard_after_forward": False}):
        model = sharded(made(Tower), **options)
        assert all(p.device == p.to_local().device == ampc.device("cuda", rank) for p in model.parameters())
        close(steps_of(model, rank, size)[1], want)


@program(2)
def parameters_of_several_devices(rank, size):
    model = nn.Sequential(nn.Linear(2, 2, device="cpu"), nn.Linear(2, 2))
    raised(ValueError, f"0.weight is on 'cpu' and 1.weight on 'cuda:{rank}'; move the module before", fully_shard, model)
    fully_shard(nn.Linear(2, 2, device="cpu" if sys.argv[2] == "None" else "cuda"))
    model = fully_shard(nn.Linear(2, 2))
    raised(RuntimeError, "has changed its dtype or device", model.cpu)


@program(2)
def memory_of_a_sharded_model(rank, size):
    """Each process has its rows; the whole exists while its module computes."""
    def wide():
        return nn.Sequential(*[nn.Linear(128, 128, bias=False) for _ in range(4)])

    one = 128 * 128 * 4
    gc.collect()
    before = ampc.cuda.memory_allocated()
    model = made(wide)
    assert ampc.cuda.memory_allocated() - before == 4 * one
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    gc.collect()
    own = ampc.cuda.memory_allocated() - before
    assert 4 * one // size <= own <= 4 * one // size + 8 * 512, own  # a filled storage has a block of its own, of the smallest size
    with ampc.no_grad():
        for _ in range(2):
            ampc.cuda.synchronize()
            ampc.cuda.reset_peak_memory_stats()
            model(ampc.ones(1, 128))
            ampc.cuda.synchronize()
    assert ampc.cuda.max_memory_allocated() - before <= own + 2.6 * one  # two layers, and rows on their way
    assert ampc.cuda.memory_allocated() - before <= own + 2 * 1024
    model[0].unshard()
    raised(RuntimeError, "the memory of weight cannot be given back", lambda: (ampc.utils.dlpack.to_dlpack(model[0].weight.detach()), model[0].reshard()))


@program(2)
def a_graph_captures_no_collective(rank, size):
    x, graph = ampc.ones(3), ampc.cuda.CUDAGraph()
    dist.all_reduce(x)

    def capture(collective):
        with ampc.cuda.graph(graph):
            y = x * 2
            if collective:
                dist.all_reduce(x)
        return y

    raised(RuntimeError, "a collective of NCCL cannot be captured", capture, True)
    time.sleep(0.3)  # the thread that looks at operations has been asking meanwhile
    y = capture(False)
    graph.replay()
    dist.all_reduce(x)
    assert y.tolist() == [4.0] * 3 and x.tolist() == [4.0] * 3


@program(2)
def devices_that_differ(rank, size):
    if sys.argv[2] == "None":  # a group of both kinds
        here, there = ampc.ones(3), ampc.ones(3, device="cpu")
        for f in (dist.all_reduce, lambda t: dist.broadcast(t, 0), lambda t: dist.all_reduce(t, async_op=True).wait()):
            raised(RuntimeError, "of 3 elements of float32, SUM, on GPUs" if f is dist.all_reduce else "on GPUs", f, there if rank else here)
        for t in (here, there):
            dist.all_reduce(t)
            assert t.tolist() == [2.0] * 3


@program(2)
def names(rank, size):
    assert dist.is_available() and dist.is_nccl_available() and dist.is_backend_available("nccl")
    alone = sys.argv[2] == "nccl"
    assert dist.get_backend() == ("nccl" if alone else "cpu:mpi,cuda:nccl")
    dist.barrier(device_ids=[rank])
    assert dist.barrier(device_ids=[rank], async_op=True).wait()
    if alone:
        raised(RuntimeError, "takes tensors of GPUs alone (backend 'nccl'), and this one is on 'cpu'", dist.all_reduce, ampc.ones(2, device="cpu"))
    else:
        x = ampc.ones(2, device="cpu")
        dist.all_reduce(x)
        assert x.tolist() == [2.0, 2.0]
    raised(ValueError, "unknown backend", dist.new_group, backend="cpu:nccl")


def prepare(rank):
    """Each process has a GPU of its own, on which tensors lie."""
    ampc.cuda.set_device(rank)
    ampc.set_default_device(f"cuda:{rank}")


if __name__ == "__main__":
    sys.modules["nccl_ranks"] = sys.modules["__main__"]
    ranks.run(sys.argv[1], PROGRAMS, None if sys.argv[2] == "None" else sys.argv[2], prepare)
