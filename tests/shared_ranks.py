"""What test_distributed_shared.py runs in several processes of one host, or of two as AMPC_RANKS_PER_HOST claims, as ranks.py does."""

import os
import sys
import warnings
import zlib

import numpy as np
import ranks
from ranks import Op, raised

import ampc
import ampc.distributed as dist
from ampc.distributed import _over_mpi, _shared

PROGRAMS = {}
FLOATS = ("float32", "float64", "float16", "bfloat16")
WHOLE = ("int8", "uint8", "int16", "int32", "int64", "bool")
SIZES = (0, 1, 4099, 150_001, 300_007)  # the last have shares for the ranks, in several pieces or one
EPSILON = {"float32": 2.0**-24, "float64": 2.0**-53, "float16": 2.0**-11, "bfloat16": 2.0**-8}
COMBINE = {Op.SUM: np.add, Op.AVG: np.add, Op.PRODUCT: np.multiply, Op.MIN: np.minimum, Op.MAX: np.maximum, Op.BAND: np.bitwise_and,
           Op.BOR: np.bitwise_or, Op.BXOR: np.bitwise_xor}


def values(rank, dtype, n):
    draw = np.random.default_rng([rank, n])
    whole = draw.integers(0, 2 if dtype == "bool" else 100, n)
    return ampc.tensor(draw.standard_normal(n) if dtype in FLOATS else whole).to(getattr(ampc, dtype))


def bits(t):
    return zlib.crc32(t.contiguous().view(ampc.uint8).numpy().tobytes()) if t.numel() else 0


def all_have(t, group=None):
    """Every rank has these bits."""
    found = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, bits(t), group)
    assert len(set(found)) == 1, found


def near(found, op, given):
    """Within the dtype's rounding of the float64 reference; whole numbers are exact."""
    dtype = found.dtype.name.split(".")[-1]
    kind = "f8" if dtype in FLOATS else bool if dtype == "bool" else "i8"
    all_ = np.stack([t.reshape(-1).double().numpy() if dtype in FLOATS else t.reshape(-1).numpy() for t in given]).astype(kind)
    want = COMBINE[op].reduce(all_) / (len(given) if op is Op.AVG else 1)
    got = found.reshape(-1)
    if dtype not in FLOATS:
        assert np.array_equal(got.numpy(), ampc.tensor(want).to(found.dtype).numpy()), (dtype, op)
        return
    computed = EPSILON["float64" if dtype == "float64" else "float32"] * len(given) * COMBINE[op].reduce(abs(all_))
    with np.errstate(over="ignore"):
        assert np.all(abs(got.double().numpy() - want) <= EPSILON[dtype] * abs(want) * 1.01 + computed + 6.0e-8 * (dtype == "float16")), (dtype, op)


@ranks.ranks(2, 3, 4, programs=PROGRAMS)
def sums_are_near_and_equal(rank, size):
    for dtype in FLOATS + WHOLE:
        for n in SIZES:
            given = [values(r, dtype, n) for r in range(size)]
            for op in (Op.AVG, Op.SUM, Op.MIN, Op.MAX, Op.PRODUCT)[:5 if n < 5000 else 2] if dtype in FLOATS else (Op.SUM, Op.BXOR, Op.BAND, Op.MIN):
                x, again = given[rank].clone(), given[rank].clone()
                dist.all_reduce(x, op)
                near(x, op, given)
                dist.all_reduce(again, op)
                assert bits(x) == bits(again)
                all_have(x)


@ranks.ranks(2, 3, 4, programs=PROGRAMS)
def parts_are_near(rank, size):
    for dtype in FLOATS + ("int8", "bool"):
        for n in (0, 7, 4099, 140_001):
            given = [values(r, dtype, n * size) for r in range(size)]
            part = slice(rank * n, rank * n + n)
            for op in (Op.SUM, Op.MAX, Op.AVG if dtype in FLOATS else Op.BOR):
                out = ampc.empty(n, dtype=given[0].dtype)
                dist.reduce_scatter_tensor(out, given[rank], op)
                near(out, op, [t[part] for t in given])
                x = given[rank].clone()
                dist.reduce(x, size - 1, op)
                near(x, op, given) if rank == size - 1 else near(x, Op.SUM, [given[rank]])
            out = ampc.empty(n * size * size, dtype=given[0].dtype)
            dist.all_gather_into_tensor(out, given[rank])
            assert ampc.equal(out, ampc.cat(given))
            x = given[rank].clone()
            dist.broadcast(x, 1)
            assert ampc.equal(x, given[1])


@ranks.ranks(2, 4, programs=PROGRAMS)
def what_does_not_lie_in_a_row(rank, size):
    given = [values(r, "bfloat16", 600 * 700).view(600, 700) for r in range(size)]
    x = given[rank].clone()
    dist.all_reduce(x.t())
    near(x, Op.SUM, given)
    x = given[rank].clone()
    dist.all_reduce(x[:, ::3], Op.MAX)
    near(x[:, ::3], Op.MAX, [t[:, ::3] for t in given])
    assert ampc.equal(x[:, 1::3], given[rank][:, 1::3])
    w, y = ampc.nn.Parameter(ampc.full((64, 64), float(rank))), ampc.ones(64, 64)
    warnings.simplefilter("ignore")  # a note, where the CPU multiplies no bfloat16
    with ampc.autocast("cpu", dtype=ampc.bfloat16):
        y @ w
        dist.all_reduce(w)  # a write, which the cache of weights sees
        assert float((y @ w).max()) == 64.0 * sum(range(size))


@ranks.ranks(2, 3, 4, programs=PROGRAMS)
def inputs_in_the_memory_of_outputs(rank, size):
    """Wherever in it: the results are those of an input apart."""
    for n in (7, 300_000):
        parts = [values(r, "float32", n) for r in range(size)]
        wholes = [values(r, "float32", n * size) for r in range(size)]
        all_ = ampc.cat(parts)
        for at in (n * rank, 0, 1, n * size - 1):
            for async_op in (False, True):
                row = ampc.zeros(n * size + n)
                out, x = row[:n * size], row[at:at + n]
                x.copy_(parts[rank])
                work = dist.all_gather_into_tensor(out, x, async_op=async_op)
                assert (work is None or work.wait()) and ampc.equal(out, all_), (n, at)
                row = ampc.cat([wholes[rank], ampc.zeros(n)])
                out, x = row[at:at + n], row[:n * size]
                work = dist.reduce_scatter_tensor(out, x, async_op=async_op)
                assert work is None or work.wait()
                near(out, Op.SUM, [t[n * rank:n * (rank + 1)] for t in wholes])
        x = wholes[rank].clone()
        dist.all_to_all_single(x, x)
        assert ampc.equal(x, ampc.cat([t[n * rank:n * (rank + 1)] for t in wholes]))
        row = ampc.cat([wholes[rank], ampc.zeros(1)])
        dist.all_to_all_single(row[1:], row[:-1])
        assert ampc.equal(row[1:], x)


@ranks.ranks(2, 4, programs=PROGRAMS)
def nan_is_in_every_rank(rank, size):
    for n in (10, 300_000):
        for op in (Op.MIN, Op.MAX, Op.SUM):
            for at in range(size):
                x = ampc.ones(n)
                if rank == at:
                    x[n - 1] = float("nan")
                dist.all_reduce(x, op)
                assert x[n - 1] != x[n - 1] and not x[:n - 1].isnan().any()


@ranks.ranks(2, 4, programs=PROGRAMS)
def many_at_once(rank, size):
    """Collectives of drawn kinds and sizes, of which some are waited for later."""
    draw, open_ = np.random.default_rng(5), []
    for step in range(150):
        kind, n, waits = draw.integers(5), int(draw.choice([1, 100, 9000, 70_000, 600_000])), draw.integers(2)
        given = [ampc.full((n,), float(r + step)) for r in range(size)]
        out, t = ampc.empty(n), given[rank].clone()
        if kind == 0:
            work, want, out = dist.all_reduce(t, async_op=True), sum(given), t
        elif kind == 1:
            work, want, out = dist.broadcast(t, step % size, async_op=True), given[step % size], t
        elif kind == 2:
            work, want = dist.reduce_scatter_tensor(out, t.repeat(size), async_op=True), sum(given)
        elif kind == 3:
            out = ampc.empty(n * size)
            work, want = dist.all_gather_into_tensor(out, t, async_op=True), ampc.cat(given)
        else:
            dist.barrier()
            dist.all_reduce(t)
            work, want, out = dist.barrier(async_op=True), sum(given), t
        open_.append((work, out, want))
        while waits and open_:
            work, out, want = open_.pop(0)
            assert work.wait() and ampc.equal(out, want)
    for work, out, want in open_:
        assert work.wait() and ampc.equal(out, want)


@ranks.ranks(2, 4, programs=PROGRAMS)
def what_runs_at_once(rank, size):
    """The core runs what needs no copy and waits for nothing; the rest goes the longer way, with the same result in ranks that mix both."""
    group = dist.new_group(list(range(size)))
    x, parts = ampc.full((8,), float(rank)), ampc.full((8 * size,), float(rank))
    calls = ((_shared.MEET, None, None, None), (_shared.ALL_REDUCE, x, x, Op.SUM), (_shared.ALL_GATHER, parts, x, None),
             (_shared.REDUCE_SCATTER, x, parts, Op.AVG), (_shared.BROADCAST, x, x, None))
    before, strided = x._version, ampc.ones(8, 8).t()[1:]
    if not group.on_one_host:  # an all_reduce alone, where each is on a host of its own
        alone = group.apart is not None
        assert [group.at_once(*call, 0) for call in calls] == [alone and call[0] == _shared.ALL_REDUCE for call in calls]
        assert x._version == before + alone and x.tolist() == [sum(range(size)) if alone else rank] * 8
        refused = ((strided, Op.SUM), (x, Op.BXOR), (x, "sum"), ([1.0], Op.SUM), (ampc.ones(8, dtype=ampc.int64), Op.AVG), (ampc.ones(2_000_000), Op.SUM))
        assert not any(group.at_once(_shared.ALL_REDUCE, t, t, op, 0) for t, op in refused) and not group._worker._threads
        return
    assert all(group.at_once(*call, 0) is True for call in calls) and x._version == before + 3
    assert x.tolist() == parts.tolist()[:8] == [sum(range(size))] * 8  # the sum, in every part, whose mean it is
    whole = ampc.ones(8, dtype=ampc.int64)
    refused = ((_shared.ALL_REDUCE, strided, strided, Op.SUM), (_shared.ALL_REDUCE, whole, whole, Op.AVG), (_shared.ALL_REDUCE, x, x, Op.BXOR),
               (_shared.ALL_REDUCE, x, x, "sum"), (_shared.ALL_REDUCE, [1.0], [1.0], Op.SUM), (_shared.ALL_GATHER, x, x, None),
               (_shared.REDUCE_SCATTER, x.double(), parts, Op.SUM))
    assert not any(group.at_once(*call, 0) for call in refused)
    assert not group._worker._threads
    for n in (3, 300_000):  # one rank waits, the others wait later
        given = [values(r, "float32", n) for r in range(size)]
        y = given[rank].clone()
        work = dist.all_reduce(y, group=group, async_op=rank > 0)
        z = ampc.ones(2)
        dist.all_reduce(z, group=group)  # comes after what is under way
        assert (work is None or work.wait()) and z.tolist() == [float(size)] * 2
        near(y, Op.SUM, given)
        all_have(y, group)
    dist.destroy_process_group(group)
    assert not group.at_once(*calls[1], 0)
    raised(RuntimeError, "the group was destroyed", dist.all_reduce, x, group=group)


@ranks.ranks(4, programs=PROGRAMS)
def groups_of_some(rank, size):
    low, odd = dist.new_group([0, 1, 2]), dist.new_group([1, 3])
    for group, members in ((low, [0, 1, 2]), (odd, [1, 3])):
        if rank in members:
            for n in (3, 100_001):
                given = [values(r, "float32", n) for r in members]
                x = given[members.index(rank)].clone()
                dist.all_reduce(x, group=group)
                near(x, Op.SUM, given)
                all_have(x, group)
                dist.broadcast(x, members[-1], group=group)
    dist.barrier()


@ranks.ranks(4, programs=PROGRAMS)
def more_hosts_than_combine_at_once(rank, size):
    kept, _over_mpi.MOST = _over_mpi.MOST, 1
    given = [values(r, "bfloat16", 4099) for r in range(size)]
    x = given[rank].clone()
    dist.all_reduce(x, Op.AVG)
    _over_mpi.MOST = kept
    near(x, Op.AVG, given)


@ranks.ranks(4, programs=PROGRAMS)
def hosts_whose_ranks_do_not_stand_together(rank, size):
    group = dist.new_group(list(range(size)))
    group.by_host = []
    for dtype in ("float32", "bfloat16"):
        given = [values(r, dtype, 4099 * size) for r in range(size)]
        out = ampc.empty(4099, dtype=given[0].dtype)
        dist.reduce_scatter_tensor(out, given[rank], Op.AVG, group)
        near(out, Op.AVG, [t[rank * 4099:(rank + 1) * 4099] for t in given])
        out = ampc.empty(4099 * size * size, dtype=given[0].dtype)
        dist.all_gather_into_tensor(out, given[rank], group)
        assert ampc.equal(out, ampc.cat(given))


@ranks.ranks(2, 4, programs=PROGRAMS)
def what_does_not_agree(rank, size):
    for n in (3, 200_000, 2_000_000):
        raised(RuntimeError, f"rank 0 calls all_reduce of {n} elements", dist.all_reduce, ampc.ones(n + rank))
        raised(RuntimeError, "rank 1 calls broadcast", dist.broadcast if rank else dist.all_reduce, ampc.ones(n), *([0] if rank else []))
        x = ampc.ones(n)
        dist.all_reduce(x)
        assert float(x.max()) == float(x.min()) == size


@ranks.ranks(2, 3, 4, programs=PROGRAMS)
def some_wait_and_some_do_not(rank, size):
    """The same operation in the thread of its caller, and in the group's."""
    for n in (3, 16_000, 200_000):  # values of one message, and of two and more
        for turn in range(2):
            x, y = values(rank, "float32", n), values(rank, "float32", n)
            work = dist.all_reduce(x, async_op=rank % 2 == turn)
            dist.all_reduce(y)
            if work is not None:
                work.wait()
            near(x, Op.SUM, [values(r, "float32", n) for r in range(size)])
            assert bits(x) == bits(y)


def mapped():
    with open("/proc/self/maps") as f:
        lines = [line.split() for line in f if "memfd:ampc" in line or "/ampc_" in line]
    return sum(int(end, 16) - int(begin, 16) for begin, end in (line[0].split("-") for line in lines))


@ranks.ranks(2, programs=PROGRAMS)
def memory_is_bounded_and_freed(rank, size):
    if not sys.platform.startswith("linux"):
        return
    before, files, most = mapped(), len(os.listdir("/proc/self/fd")), size * (2 * _shared.BUFFER + 4096)
    for _ in range(20):
        group = dist.new_group([0, 1])
        dist.all_reduce(ampc.ones(3_000_000), group=group)
        dist.all_reduce(ampc.ones(3), group=group, async_op=True)
        assert mapped() - before <= most
        dist.destroy_process_group(group)
        assert mapped() == before and len(os.listdir("/proc/self/fd")) == files


@ranks.ranks(2, programs=PROGRAMS)
def other_files(rank, size):
    """Where there are no files without a name, as on systems other than Linux."""
    kept, _shared._without_a_name = _shared._without_a_name, lambda size: (-1, "")
    group = dist.new_group([0, 1])
    _shared._without_a_name = kept
    if group.on_one_host:
        x = ampc.ones(300_000)
        dist.all_reduce(x, group=group)
        assert float(x.sum()) == 600_000
    assert not os.path.isdir("/dev/shm") or not [name for name in os.listdir("/dev/shm") if name.startswith("ampc_")]
    dist.destroy_process_group(group)


if __name__ == "__main__":
    ranks.run(sys.argv[1], PROGRAMS)
