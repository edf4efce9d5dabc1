"""What test_distributed_nccl.py runs in several processes, each with a simulated GPU: ``nccl_ranks.py FOLDER BACKEND`` runs every program of
``ranks`` below. The processes are started by mpiexec, or by variables alone."""

import json
import math
import os
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path

import numpy as np
import ranks
from ranks import Op, raised

import ampc
import ampc.distributed as dist
from ampc import nn
from ampc.nn.parallel import DistributedDataParallel as DDP

PROGRAMS = {}
REDUCED = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool")
F = nn.functional


def program(*sizes):
    return ranks.ranks(*sizes, programs=PROGRAMS)


def of_rank(rank, dtype, shape=(3, 5)):
    return ranks.of_rank(rank, dtype, shape).cuda()


def values(t):
    return t.cpu().double().numpy()


def same(t, want):
    assert np.array_equal(values(t), values(ampc.tensor(np.asarray(want)).to(t.dtype))), (t, want)


def host(f):
    """What ``f`` gives with the CPU as the default device."""
    before = ampc.get_default_device()
    ampc.set_default_device("cpu")
    try:
        return f()
    finally:
        ampc.set_default_device(before)


# -- collectives -------------------------------------------------------------------------------------------------------


@program(2, 4)
def reductions_of_all_dtypes(rank, size):
    for dtype in REDUCED:
        for op in (Op.SUM, Op.AVG, Op.PRODUCT, Op.MIN, Op.MAX):
            x = of_rank(rank, dtype)
            if "float" not in dtype and op is Op.AVG:
                raised(RuntimeError, "ReduceOp.AVG", dist.all_reduce, x, op)
                continue
            before, want = x.clone(), host(lambda dtype=dtype, op=op: ranks.reduced(op, dtype, size))
            dist.all_reduce(x, op)
            same(x, want)
            x = before.clone()
            dist.reduce(x, size - 1, op)
            same(x, want if rank == size - 1 else values(before))
            out = ampc.empty(3, 5, dtype=x.dtype)
            dist.reduce_scatter(out, [before] * size, op)
            same(out, want)
            out = ampc.empty(15, dtype=x.dtype)
            dist.reduce_scatter_tensor(out, ampc.cat([before.reshape(-1)] * size), op)
            same(out.view(3, 5), want)
    raised(RuntimeError, "NCCL has no ReduceOp.BAND", dist.all_reduce, of_rank(rank, "int32"), Op.BAND)
    raised(RuntimeError, "NCCL has no ReduceOp.SUM of ampc.int16", dist.all_reduce, of_rank(rank, "int16"))


@program(2, 4)
def values_move(rank, size):
    for dtype in (*REDUCED, "int16"):
        x, all_ = of_rank(rank, dtype), [of_rank(r, dtype) for r in range(size)]
        t = x.clone()
        dist.broadcast(t, size - 1)
        assert ampc.equal(t, all_[-1])
        outs = [ampc.empty(3, 5, dtype=x.dtype) for _ in range(size)]
        dist.all_gather(outs, x)
        assert all(map(ampc.equal, outs, all_))
        out = ampc.empty(size * 3, 5, dtype=x.dtype)
        dist.all_gather_into_tensor(out, x)
        assert ampc.equal(out, ampc.cat(all_))
        outs = [ampc.empty(3, 5, dtype=x.dtype) for _ in range(size)] if rank == 1 else None
        dist.gather(x, outs, 1)
        assert outs is None or all(map(ampc.equal, outs, all_))
        dist.scatter(t, [a + a for a in all_] if rank == 1 else None, 1)
        assert ampc.equal(t, x + x)
        outs = [ampc.empty(r + 1, dtype=x.dtype) for r in range(size)]
        dist.all_to_all(outs, [a.reshape(-1)[:rank + 1] for a in [x] * size])
        assert all(ampc.equal(out, all_[r].reshape(-1)[:r + 1]) for r, out in enumerate(outs))
        out = ampc.empty(size, 5, dtype=x.dtype)
        dist.all_to_all_single(out, x[:1].expand(size, 5))
        assert ampc.equal(out, ampc.cat([a[:1] for a in all_]))


@program(2)
def tensors_that_do_not_lie_in_a_row(rank, size):
    x = ampc.zeros(4, 6)
    x[:, 1] = float(rank + 1)
    dist.all_reduce(x[:, 1])
    assert x[:, 1].tolist() == [3.0] * 4 and float(x.sum()) == 12
    dist.broadcast(x.t(), 1)
    p = nn.Parameter(ampc.full((2, 2), float(rank)))
    dist.broadcast(p, 1)
    assert p.tolist() == [[1.0, 1.0]] * 2 and p.requires_grad
    dist.all_reduce(ampc.empty(0))
    big = ampc.full((1_000_000,), float(rank))  # more than a channel of the stand-in holds
    dist.all_reduce(big)
    assert float(big.min()) == float(big.max()) == 1.0


@program(2)
def a_collective_is_a_write(rank, size):
    w, x = nn.Parameter(ampc.full((32, 32), float(rank + 1))), ampc.ones(32, 32)
    with ampc.autocast("cuda", dtype=ampc.bfloat16):
        before = (x @ w)[0, 0].item()
        dist.all_reduce(w)
        after = (x @ w)[0, 0].item()
    assert (before, after) == (32.0 * (rank + 1), 96.0)
    y = ampc.ones(3, requires_grad=True) * 2
    loss = (y * y).sum()
    dist.all_reduce(y)
    raised(RuntimeError, "", loss.backward)


@program(2)
def parts_of_other_sizes(rank, size):
    out = ampc.empty(4 if rank else 2)
    dist.all_to_all_single(out, ampc.arange(3.0) + 10 * rank, [2, 2] if rank else [1, 1], [1, 2])
    assert out.tolist() == ([1, 2, 11, 12] if rank else [0, 10])
    raised(RuntimeError, "rank 0 sends 2 elements to rank 1, which waits for 1", dist.all_to_all,
           [ampc.empty(1), ampc.empty(1)], [ampc.empty(1), ampc.empty(2 - rank)])


@program(2, 4)
def objects_move(rank, size):
    ranks.PROGRAMS["objects_move"][1](rank, size)


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


@program(4)
def groups(rank, size):
    low, high = dist.new_group([0, 1]), dist.new_group([2, 3])
    mine = low if rank < 2 else high
    x = ampc.full((2,), float(rank))
    dist.all_reduce(x, group=mine)
    assert x.tolist() == [1.0 if rank < 2 else 5.0] * 2
    dist.broadcast(x, rank // 2 * 2 + 1, group=mine)
    dist.destroy_process_group(mine)


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


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)

    def forward(self, x):
        return self.last(F.gelu(self.norm(self.first(x))))


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.last(F.gelu(self.first(x)))


def made(kind=Plain):
    ampc.manual_seed(0)
    return kind().to("cuda")


def batch(step):
    draw = np.random.default_rng(step)
    return ampc.tensor(draw.normal(size=(8, 6)).astype("f4")), ampc.tensor(draw.integers(0, 3, 8))


def trained(model, rank=0, size=1, optimizer=None, steps=3):
    optimizer = ampc.optim.AdamW(model.parameters(), lr=0.05) if optimizer is None else optimizer
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        F.cross_entropy(model(x[rank::size]), y[rank::size]).backward()
        optimizer.step()
    return np.concatenate([values(p.detach()).ravel() for p in model.parameters()])


@program(2, 4)
def ddp_is_one_process_on_the_joined_batch(rank, size):
    want = trained(made())
    for options in ({}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}, {"bucket_cap_mb": 1e-4}):
        got = trained(DDP(made(), device_ids=[rank], **options), rank, size)
        assert np.allclose(got, want, rtol=1e-4, atol=1e-5), (options, np.abs(got - want).max())
    found = [None] * size
    dist.all_gather_object(found, got)
    assert all(np.array_equal(found[0], each) for each in found)


@program(2)
def synchronised_batch_norm(rank, size):
    one, model = made(Net), DDP(nn.SyncBatchNorm.convert_sync_batchnorm(made(Net)))
    want = trained(one, optimizer=ampc.optim.SGD(one.parameters(), lr=0.1))
    got = trained(model, rank, size, ampc.optim.SGD(model.parameters(), lr=0.1))
    assert np.allclose(got, want, rtol=1e-4, atol=1e-5), np.abs(got - want).max()
    assert ampc.allclose(model.module.norm.running_var, one.norm.running_var)


@program(2)
def optimizers_that_share_their_state(rank, size):
    want = trained(made())
    for view in (False, True):
        model = made()
        optimizer = dist.optim.ZeroRedundancyOptimizer(model.parameters(), ampc.optim.AdamW, lr=0.05, parameters_as_bucket_view=view)
        got = trained(DDP(model), rank, size, optimizer)
        assert np.allclose(got, want, rtol=1e-4, atol=1e-5), np.abs(got - want).max()
        optimizer.consolidate_state_dict(1)
        assert rank != 1 or len(optimizer.state_dict()["state"]) == 4


@program(2)
def an_overflow_on_one_rank_skips_the_step_on_all(rank, size):
    model = DDP(made())
    optimizer, scaler = ampc.optim.SGD(model.parameters(), lr=0.1), ampc.amp.GradScaler(init_scale=1024.0)
    before = [values(p.detach()) for p in model.parameters()]
    for bad in (1, None):
        optimizer.zero_grad()
        x, y = batch(0)
        loss = F.cross_entropy(model(x[rank::size]), y[rank::size]) * (math.inf if rank == bad else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        changed = [not np.array_equal(values(p.detach()), b) for p, b in zip(model.parameters(), before)]
        assert any(changed) is (bad is None)
    scales = [None] * size
    dist.all_gather_object(scales, scaler.get_scale())
    assert scales == [scales[0]] * size


@program(2)
def ranks_that_end_at_different_times(rank, size):
    model = DDP(made())
    optimizer = ampc.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for step in range(2 + rank):
            x, y = batch(step)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    found = [None] * size
    dist.all_gather_object(found, [values(p.detach()) for p in model.parameters()])
    assert all(np.array_equal(a, b) for a, b in zip(*found))


# -- errors ----------------------------------------------------------------------------------------------------------------


@program(2)
def ranks_that_do_not_agree(rank, size):
    for f, text in ((lambda: dist.all_reduce(ampc.ones(2 + rank)), "rank 1 calls all_reduce of 3 elements of float32, SUM, shape [3], on GPUs"),
                    (lambda: dist.all_reduce(ampc.ones(2, dtype=(ampc.float32, ampc.float64)[rank])), "elements of float64"),
                    (lambda: dist.broadcast(ampc.ones(2), rank), "from 1"),
                    (lambda: dist.all_reduce(ampc.ones(2), (Op.SUM, Op.MAX)[rank]), "MAX")):
        raised(RuntimeError, text, f)
    x = ampc.ones(2)
    dist.all_reduce(x)  # and the group still works
    assert x.tolist() == [2.0, 2.0]


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


def run(folder, backend):
    """Runs those for this number of processes, and writes what went wrong."""
    dist.init_process_group(None if backend == "None" else backend, timeout=timedelta(seconds=60))
    rank, size, wrong = dist.get_rank(), dist.get_world_size(), {}
    ampc.cuda.set_device(rank)
    ampc.set_default_device(f"cuda:{rank}")
    wanted = os.environ.get("PROGRAMS", "").split()
    for name, (sizes, f) in PROGRAMS.items():
        if size in sizes and (not wanted or name in wanted):
            begin = time.monotonic()
            try:
                f(rank, size)
                text = ""
            except Exception:
                text = traceback.format_exc()
            wrong[name] = text, time.monotonic() - begin
            try:
                dist.barrier()
            except Exception:
                wrong[name] = wrong[name][0] + traceback.format_exc(), 0
                break
    Path(folder, f"{rank}.json").write_text(json.dumps(wrong))
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.modules["nccl_ranks"] = sys.modules["__main__"]
    run(*sys.argv[1:3])
