"""What test_distributed.py runs in several processes: ``mpiexec -n 2 python ranks.py FOLDER`` runs every function with ``@ranks(2)``, and each
process writes what went wrong in which function to a file of FOLDER. All processes run the same functions in the same order. Tensors lie on the
default device; nccl_ranks.py runs some of the functions on GPUs."""

import json
import os
import sys
import tempfile
import time
import traceback
import warnings
from datetime import timedelta
from pathlib import Path

import numpy as np

import ampc
import ampc.distributed as dist
from ampc.distributed import groups as process_groups

PROGRAMS = {}  # name -> (sizes, function)
REDUCED = ("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool")
Op = dist.ReduceOp
BITWISE = Op.BAND, Op.BOR, Op.BXOR


def ranks(*sizes, programs=PROGRAMS):
    def add(f):
        programs[f.__name__] = sizes, f
        return f

    return add


def raised(kind, text, f, *args, **kwargs):
    try:
        f(*args, **kwargs)
    except kind as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"{f.__name__} raised nothing; expected {kind.__name__} with {text!r}")


def device():
    """The kind of the default device."""
    return ampc.get_default_device().type


def array(t):
    """Its values as float64, on the CPU."""
    return t.detach().cpu().double().numpy()


def is_reduced(dtype, op):
    """Whether the default device's backend reduces values of the dtype."""
    if (dtype == "int16" or op in BITWISE) and device() == "cuda":  # by NCCL
        return False
    return op not in BITWISE if "float" in dtype else op is not Op.AVG


def of_rank(rank, dtype, shape=(3, 5)):
    """Values that every process can compute for every rank."""
    values = np.random.default_rng(rank).integers(0, 2 if dtype == "bool" else 7, shape)
    return ampc.tensor(values).to(getattr(ampc, dtype))


def reduced(op, dtype, size):
    """The reduction over all ranks by NumPy, as float64 or integers."""
    all_ = np.stack([array(of_rank(r, dtype)).astype("f8" if "float" in dtype else "i8") for r in range(size)])
    f = {Op.SUM: np.add, Op.AVG: np.add, Op.PRODUCT: np.multiply, Op.MIN: np.minimum, Op.MAX: np.maximum, Op.BAND: np.bitwise_and,
         Op.BOR: np.bitwise_or, Op.BXOR: np.bitwise_xor}[op]
    found = f.reduce(all_)
    return found / size if op is Op.AVG else found.astype(bool) if dtype == "bool" and op is not Op.BXOR else found


def same(t, want):
    assert np.array_equal(array(t), array(ampc.tensor(np.asarray(want)).to(t.dtype))), (t, want)


# -- reductions --------------------------------------------------------------------------------------------------------


@ranks(2, 4)
def reductions_of_all_dtypes(rank, size):
    for dtype in REDUCED:
        for op in (Op.SUM, Op.AVG, Op.PRODUCT, Op.MIN, Op.MAX, Op.BAND, Op.BOR, Op.BXOR):
            x = of_rank(rank, dtype)
            if not is_reduced(dtype, op):
                raised(RuntimeError, f"ReduceOp.{op.name}", dist.all_reduce, x, op)
                continue
            before, want = x.clone(), reduced(op, dtype, size)
            dist.all_reduce(x, op)
            same(x, want)
            x = before.clone()
            dist.reduce(x, size - 1, op)
            same(x, want if rank == size - 1 else array(before))
            out = ampc.empty(3, 5, dtype=x.dtype)
            dist.reduce_scatter(out, [before] * size, op)
            same(out, want)
            out = ampc.empty(15, dtype=x.dtype)
            dist.reduce_scatter_tensor(out, ampc.cat([before.reshape(-1)] * size), op)
            same(out.view(3, 5), want)


@ranks(4)
def sixteen_bits_are_rounded_once(rank, size):
    for dtype in (ampc.float16, ampc.bfloat16):
        x = ampc.full((4,), 1.0 if rank == 0 else 2.0**-9, dtype=dtype)  # a sum in 16 bits would stay at 1 in bfloat16
        dist.all_reduce(x)
        same(x, ampc.full((4,), 1.0 + 3 * 2.0**-9).to(dtype).double().numpy())


@ranks(2)
def tensors_that_do_not_lie_in_a_row(rank, size):
    x = ampc.zeros(4, 6)
    x[:, 1] = float(rank + 1)
    dist.all_reduce(x[:, 1])
    assert x[:, 1].tolist() == [3.0] * 4 and float(x.sum()) == 12
    dist.broadcast(x.t(), 1)
    p = ampc.nn.Parameter(ampc.full((2, 2), float(rank)))
    dist.broadcast(p, 1)
    assert p.tolist() == [[1.0, 1.0]] * 2 and p.requires_grad
    e = ampc.empty(0)
    dist.all_reduce(e)
    big = ampc.full((1_000_000,), float(rank))  # more than fits into shared memory at once
    dist.all_reduce(big)
    assert float(big.min()) == float(big.max()) == 1.0


@ranks(2)
def a_collective_is_a_write(rank, size):
    """Caches of weights and backward passes see it."""
    w, x = ampc.nn.Parameter(ampc.full((32, 32), float(rank + 1))), ampc.ones(32, 32)
    with ampc.autocast(device(), dtype=ampc.bfloat16):
        before = (x @ w)[0, 0].item()
        dist.all_reduce(w)
        after = (x @ w)[0, 0].item()
    assert (before, after) == (32.0 * (rank + 1), 96.0)
    y = ampc.ones(3, requires_grad=True) * 2
    loss = (y * y).sum()
    dist.all_reduce(y)
    raised(RuntimeError, "", loss.backward)


# -- moving values -----------------------------------------------------------------------------------------------------


@ranks(2, 4)
def values_move(rank, size):
    for dtype in REDUCED:
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


@ranks(2)
def parts_of_other_sizes(rank, size):
    out = ampc.empty(4 if rank else 2)
    dist.all_to_all_single(out, ampc.arange(3.0) + 10 * rank, [2, 2] if rank else [1, 1], [1, 2])
    assert out.tolist() == ([1, 2, 11, 12] if rank else [0, 10])
    raised(RuntimeError, "rank 0 sends 2 elements to rank 1, which waits for 1", dist.all_to_all,
           [ampc.empty(1), ampc.empty(1)], [ampc.empty(1), ampc.empty(2 - rank)])


@ranks(2, 4)
def objects_move(rank, size):
    out = [None] * size
    dist.all_gather_object(out, {"rank": rank})
    assert out == [{"rank": r} for r in range(size)]
    out = [None] * size if rank == 0 else None
    dist.gather_object(ampc.full((2,), rank), out)
    assert out is None or [int(t[0]) for t in out] == list(range(size))
    out = [rank, "a" * rank]
    dist.broadcast_object_list(out, 1)
    assert out == [1, "a"]
    out = [None]
    dist.scatter_object_list(out, [str(r) for r in range(size)] if rank == 0 else None)
    assert out == [str(rank)]


@ranks(2, 4)
def messages(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    big = [ampc.empty(200_000, dtype=ampc.int64), ampc.full((200_000,), rank, dtype=ampc.int64)]
    works = [dist.isend(big[1], right), dist.irecv(big[0], left)]  # each sends before it receives
    assert all(w.wait() for w in works) and works[0].is_completed() and int(big[0].max()) == left == works[1].source_rank() == works[1]._source_rank()
    works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, big[0], right), dist.P2POp(dist.isend, big[1], left)])
    assert all(w.wait() for w in works) and int(big[0].min()) == right
    x = ampc.zeros(3, 2).t()
    if rank == 0:
        dist.send(ampc.full((2, 3), 5.0), 1, tag=7)
    elif rank == 1:
        assert dist.recv(x, tag=7) == 0 and x.tolist() == [[5.0] * 3] * 2
    if rank == 0:
        dist.send(ampc.ones(2), 1)
    elif rank == 1:
        raised(RuntimeError, "the message has 8 bytes, the tensor 12", dist.recv, ampc.empty(3), 0)
    raised(ValueError, "is this process itself", dist.send, x, rank)


@ranks(2)
def a_message_of_another_dtype_is_named(rank, size):
    """torch's gloo takes its bits for values of the receiver's dtype. Other shapes of as many elements are no mistake, as in torch."""
    if rank == 0:
        for dtype in ("bool", "float16", "int32"):
            dist.send(ampc.ones(3, dtype=getattr(ampc, dtype)), 1, tag=5)
        dist.send(ampc.arange(6.0), 1)
    else:
        x = ampc.zeros(3)
        raised(RuntimeError, "a receive of 3 elements of float32 from rank 0: rank 0 has sent 3 bytes of bool", dist.recv, x, 0, tag=5)
        work = dist.irecv(x, tag=5)
        raised(RuntimeError, "from any rank: rank 0 has sent 3 bytes of bool", work.wait)
        assert work.is_completed() and not work.is_success() and x.tolist() == [0.0] * 3
        for dtype in ("int32", "float16", "bool"):  # the right ones still come
            y = ampc.zeros(3, dtype=getattr(ampc, dtype))
            assert dist.recv(y, 0, tag=5) == 0 and y.tolist() == [1] * 3
        x = ampc.zeros(2, 3)
        dist.recv(x, 0)
        assert x.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    dist.barrier()


# -- groups, waiting -----------------------------------------------------------------------------------------------------


@ranks(4)
def groups_that_only_members_make(rank, size):
    if rank < 2:
        dist.new_group([0, 1], use_local_synchronization=True)
    mine, others = dist.new_group([1, 2]), dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
    parts = dist.new_subgroups(1, others[0])[1] + dist.new_subgroups(2, others[0])[1]
    later = dist.new_group([0, 3])  # of ranks that have made different numbers of groups
    for group, members in ((mine, [1, 2]), (others[0], [rank % 2, rank % 2 + 2]), (parts[rank // 2], [rank]),
                           (parts[2], [rank % 2, rank % 2 + 2]), (later, [0, 3])):
        if group is not dist.group.NON_GROUP_MEMBER:
            x = ampc.full((3,), float(rank))
            dist.all_reduce(x, group=group)
            assert x.tolist() == [sum(members)] * 3, (members, x)


@ranks(4)
def groups(rank, size):
    low, high = dist.new_group([1, 0]), dist.new_group([2, 3])
    mine, other = (low, high) if rank < 2 else (high, low)
    assert other is dist.group.NON_GROUP_MEMBER and dist.get_rank(other) == dist.get_world_size(other) == -1
    dist.destroy_process_group(other)  # which is no group of this process
    assert dist.get_rank(mine) == rank % 2 and dist.get_world_size(mine) == 2 and dist.get_backend(mine) == dist.get_backend()
    assert dist.get_process_group_ranks(mine) == [rank // 2 * 2, rank // 2 * 2 + 1]
    assert dist.get_global_rank(mine, 1) == rank // 2 * 2 + 1 and dist.get_group_rank(mine, rank) == rank % 2
    x = ampc.full((2,), float(rank))
    dist.all_reduce(x, group=mine)
    assert x.tolist() == [1.0 if rank < 2 else 5.0] * 2
    dist.broadcast(x, rank // 2 * 2 + 1, group=mine)
    dist.broadcast(x, group_src=0, group=mine)
    raised(ValueError, "must be one of the group's ranks", dist.broadcast, x, (rank + 2) % 4, mine)
    dist.destroy_process_group(mine)
    raised(ValueError, "not destroyed yet", dist.destroy_process_group, mine)


@ranks(2)
def asynchronous(rank, size):
    xs = [ampc.full((1000,), float(i + rank)) for i in range(5)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    futures = [w.get_future().then(lambda f: f.value()[0] / 2) for w in works]
    assert all(w.wait() for w in works) and all(w.is_success() and w.exception() is None for w in works)
    assert [float(x[0]) for x in xs] == [2.0 * i + 1 for i in range(5)]
    assert [float(f.wait()[0]) for f in futures] == [i + 0.5 for i in range(5)]
    y = ampc.empty(4)
    work = dist.all_gather_into_tensor(y, ampc.full((2,), float(rank)), async_op=True)  # which keeps what is read
    assert work.wait(timedelta(0)) and y.tolist() == [0, 0, 1, 1]  # 0: the group's own limit, as in torch
    raised(TypeError, "`timeout` must be a datetime.timedelta, got int", work.wait, 0)
    assert dist.barrier(async_op=True).wait()


@ranks(2)
def who_is_missing(rank, size):
    if rank == 0:
        raised(RuntimeError, "rank 1 of 2 did not come", dist.monitored_barrier, timeout=timedelta(seconds=0.3))
    else:
        time.sleep(0.6)
        raised(RuntimeError, "rank 0 has not come", dist.monitored_barrier, timeout=timedelta(seconds=0.1))
    dist.monitored_barrier()
    dist.monitored_barrier(wait_all_ranks=True)


# -- bad input -----------------------------------------------------------------------------------------------------------


@ranks(2)
def ranks_that_do_not_agree(rank, size):
    for f, texts in ((lambda: dist.all_reduce(ampc.ones(2 + rank)), ("rank 0 calls all_reduce of 2 elements", "rank 1 calls all_reduce of 3")),
                     (lambda: dist.all_reduce(ampc.ones(2, dtype=(ampc.float32, ampc.float64)[rank])), ("float32", "float64")),
                     (lambda: dist.broadcast(ampc.ones(2), rank), ("from 0", "from 1")),
                     (lambda: dist.barrier() if rank else dist.all_reduce(ampc.ones(2)), ("rank 1 calls barrier",)),
                     (lambda: dist.all_reduce(ampc.ones(2), (Op.SUM, Op.MAX)[rank]), ("SUM", "MAX"))):
        raised(RuntimeError, texts[rank % len(texts)], f)
    x = ampc.ones(2)
    dist.all_reduce(x)  # and the group still works
    assert x.tolist() == [2.0, 2.0]


@ranks(2)
def who_waits_long_says_for_whom(rank, size):
    process_groups.PATIENCE, before, apart = 0.3, process_groups.PATIENCE, dist.new_group()
    dist.broadcast(ampc.ones(2), 0)
    for asynchronous in (False, True):
        group = dist.new_group()
        time.sleep(1.5 * rank)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for one in (group, apart):
                work = dist.all_reduce(ampc.ones(2), group=one, async_op=asynchronous)
                work = work and work.wait()
        texts = [str(w.message) for w in told if "has waited" in str(w.message)]
        assert len(texts) == (rank == 0), texts
        if rank == 0:
            assert "rank 0 has waited" in texts[0] and "rank 1 has not come to it (the last it began was" in texts[0] and "then fails" in texts[0]
    process_groups.PATIENCE = before


@ranks(2)
def a_forked_process_is_no_rank(rank, size):
    """Were it one, rank 1 would take its values for rank 0's."""
    if rank == 0:
        child = os.fork()
        if child == 0:
            try:
                x = ampc.full((3,), 100.0)
                for f in (lambda: dist.all_reduce(x), lambda: dist.all_reduce(x, async_op=True), dist.barrier, lambda: dist.send(x, 1),
                          dist.monitored_barrier, lambda: dist.new_group([0]), lambda: dist.all_gather_object([None] * 2, 1)):
                    raised(dist.DistBackendError, "a forked process takes no part", f)
                assert dist.get_rank() == 0 and dist.is_initialized()
                dist.destroy_process_group()
                raised(dist.DistBackendError, "init_process_group: a forked process takes no part", dist.init_process_group)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
    x = ampc.ones(3)
    dist.all_reduce(x)
    assert x.tolist() == [2.0] * 3 and (rank or os.waitpid(child, 0)[1] == 0)
    time.sleep((1 - rank) * 0.5)  # rank 1 waits so long that it looks whether others have left, as the child has
    dist.barrier()


@ranks(2, 4)
def lists_of_objects(rank, size):
    class_, objects = dist.DebugLevel.INFO, ["a", {1: 2}, ampc.full((2,), 3.0)]
    if rank == 0:
        dist.send_object_list(objects, dst=1)
        dist.send_object_list([class_], 1, device="cpu")
        dist.send_object_list([], 1)
        dist.send_object_list([1, 2], 1)
        dist.send_object_list([3], group_dst=1)
    elif rank == 1:
        found, one = [None] * 3, [None]
        assert dist.recv_object_list(found, src=0) == 0 and found[:2] == objects[:2] and found[2].tolist() == [3.0, 3.0]
        assert dist.recv_object_list(one) == 0 and one == [class_] and dist.recv_object_list([], 0) == 0
        raised(RuntimeError, "rank 0 has sent 2 objects, and `object_list` has 1 elements", dist.recv_object_list, one, 0)
        assert dist.recv_object_list(one, group_src=0) == 0 and one == [3]  # the one after it
        raised(TypeError, "`object_list` must be a list", dist.recv_object_list, ("a",), 0)
    raised(ValueError, "is this process itself", dist.send_object_list, [1], rank)


@ranks(2, 4)
def several_tensors_at_once(rank, size):
    """As torch's gloo, which test_distributed_beside_torch.py asks."""
    xs = [ampc.full((2,), rank + 1.0), ampc.ones(3, 2).t(), ampc.zeros(0)]
    total = size * (size + 1) / 2
    assert dist.all_reduce_coalesced(xs) is None
    assert xs[0].tolist() == [total] * 2 and xs[1].tolist() == [[size] * 3] * 2
    future = dist.all_reduce_coalesced(xs, Op.MAX, async_op=True)
    assert future.wait() is xs and future.value() is xs and future.done() and xs[0].tolist() == [total] * 2
    outs = [[ampc.zeros(2), ampc.zeros(1, 3)] for _ in range(size)]
    assert dist.all_gather_coalesced(outs, [ampc.full((2,), float(rank)), ampc.full((3,), 5.0 * rank)]) is None
    assert all(a.tolist() == [r] * 2 and b.tolist() == [[5.0 * r] * 3] for r, (a, b) in enumerate(outs))
    future = dist.all_gather_coalesced(outs, [ampc.full((2,), 1.0), ampc.full((3,), 2.0)], async_op=True)
    assert future.wait() is outs and outs[0][0].tolist() == [1.0] * 2
    raised(ValueError, "must have one dtype and device", dist.all_reduce_coalesced, [xs[0], xs[1].double()])
    raised(ValueError, "must have a tensor or more", dist.all_reduce_coalesced, [])
    raised(RuntimeError, "a list for each of the", dist.all_gather_coalesced, outs[1:], outs[0])
    raised(RuntimeError, "must have the elements and dtypes", dist.all_gather_coalesced, [outs[0][::-1], *outs[1:]], outs[0])


@ranks(2, 4)
def parts_of_different_sizes(rank, size):
    for op in (Op.SUM, Op.AVG):
        for async_op in (False, True):
            parts, out = [ampc.full((r + 1,), float(r)) * (rank + 1) for r in range(size)], ampc.zeros(rank + 1)
            kept = [t.clone() for t in parts]
            work = dist.reduce_scatter(out, parts, op, async_op=async_op)
            assert not async_op or work.wait() and work.is_completed() and work.is_success() and work.exception() is None and work.result()[0] is out
            assert out.tolist() == [rank * size * (size + 1) / 2 / (size if op is Op.AVG else 1)] * (rank + 1)
            assert all(a.tolist() == b.tolist() for a, b in zip(parts, kept))
    raised(RuntimeError, f"`input_list[{rank}]` must have {rank + 1} elements", dist.reduce_scatter, ampc.zeros(rank + 1), [ampc.zeros(9)] * size)
    raised(RuntimeError, "the ranks do not agree: rank 0 calls reduce of 2 elements", dist.reduce_scatter, ampc.zeros(2),
           [ampc.zeros(2) if r == rank else ampc.zeros(3) for r in range(size)])


@ranks(2)
def an_expanded_tensor(rank, size):
    """Each element that is shown several times is reduced once, as in torch."""
    x = ampc.ones(1) * (rank + 1)
    dist.all_reduce(x.expand(3))
    assert x.item() == 3
    y = ampc.arange(3.0) + rank
    dist.broadcast(y.expand(2, 3), 1)
    assert y.tolist() == [1.0, 2.0, 3.0]
    z = ampc.arange(6.0).reshape(2, 3)
    dist.all_reduce(z[:, ::2])
    assert z.tolist() == [[0.0, 1.0, 4.0], [6.0, 4.0, 10.0]]


@ranks(2, 4)
def subgroups(rank, size):
    before = dist.get_pg_count()
    mine, made = dist.new_subgroups(1)
    assert dist.get_process_group_ranks(mine) == [rank] and [dist.get_rank(g) for g in made] == [0 if r == rank else -1 for r in range(size)]
    mine, made = dist.new_subgroups(size // 2)
    half = size // 2
    assert len(made) == 2 and dist.get_process_group_ranks(mine) == list(range(rank // half * half, rank // half * half + half))
    x = ampc.full((1,), float(rank))
    dist.all_reduce(x, group=mine)
    assert x.item() == sum(dist.get_process_group_ranks(mine))
    mine, made = dist.new_subgroups_by_enumeration([[1], [0]])
    assert (mine is None) == (rank > 1) and (rank > 1 or dist.get_process_group_ranks(mine) == [rank])
    assert dist.get_pg_count() == before + size + 4  # others' are counted, too
    for size_ in (0, -1, 3, size + 1):
        raised(ValueError, "must be positive and divide", dist.new_subgroups, size_)
    raised(ValueError, "without GPUs `group_size` must be given", dist.new_subgroups)
    raised(ValueError, "rank 0 is in both [1, 0] and [0]", dist.new_subgroups_by_enumeration, [[1, 0], [0]])
    raised(ValueError, "must be lists of ranks", dist.new_subgroups_by_enumeration, None)


@ranks(2)
def names_of_backends(rank, size):
    assert dist.Backend("GLOO") == dist.Backend.GLOO == "gloo" and dist.get_backend() == dist.Backend.MPI
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert dist.get_backend(dist.new_group(backend="cpu:gloo")) == "gloo"  # as the script calls it
    raised(ValueError, "expected a name such as 'mpi', got int", dist.Backend, 3)
    assert dist.get_backend_config() == "cpu:mpi,cuda:mpi" and dist.get_default_backend_for_device("cpu") == "mpi"
    assert dist.get_default_backend_for_device(ampc.device("cuda", 0)) == "nccl"
    raised(ValueError, "expected a CPU or a GPU", dist.get_default_backend_for_device, "meta")
    kept = os.environ.pop("TORCH_DISTRIBUTED_DEBUG", None)
    assert dist.get_debug_level() == dist.DebugLevel.OFF
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    assert dist.get_debug_level() is dist.DebugLevel.DETAIL
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "info"
    dist.set_debug_level_from_env()
    assert dist.get_debug_level() is dist.DebugLevel.INFO
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "much"
    raised(RuntimeError, "must be OFF, INFO or DETAIL, got 'MUCH'", dist.set_debug_level_from_env)
    del os.environ["TORCH_DISTRIBUTED_DEBUG"]
    os.environ.update({} if kept is None else {"TORCH_DISTRIBUTED_DEBUG": kept})
    dist.set_debug_level_from_env()


@ranks(2, 4)
def orders_of_new_groups(rank, size):
    """Each is named at once, and groups can be made after it."""
    raised(RuntimeError, "the ranks do not agree: rank 0 calls new_group of ranks [0]; rank 1 calls new_group of ranks [1]", dist.new_group, [rank])
    raised(RuntimeError, "rank 0 calls barrier; rank 1 calls new_group of ranks [0, 1]", *([dist.barrier] if rank == 0 else [dist.new_group, [0, 1]]))
    group = dist.new_group([0, 1])
    if rank < 2:
        x = ampc.ones(1)
        dist.all_reduce(x, group=group)
        assert x.item() == 2
        dist.barrier(group=dist.new_group([0, 1], use_local_synchronization=True))  # the others do not call it
    dist.barrier()


@ranks(2)
def arguments(rank, size):
    x = ampc.ones(2)
    raised(TypeError, "`tensor` must be a Tensor, got list", dist.all_reduce, [x])
    raised(TypeError, "`op` must be one of", dist.all_reduce, x, "sum")
    raised(RuntimeError, "has no values", dist.all_reduce, ampc.ones(2, device="meta"))
    raised(RuntimeError, "a tensor for each of the 2 ranks", dist.all_gather, [x], x)
    raised(RuntimeError, "must have 2 elements", dist.all_gather, [x, ampc.ones(3)], x)
    raised(ValueError, "of ampc.float32, got [2] of ampc.float64", dist.all_gather, [x, x.double()], x)
    raised(ValueError, "must be None in every rank" if rank else "must be given", dist.gather, x, [x] if rank else None)
    raised(RuntimeError, "`tag` must be a number from 0", dist.isend, x, 1 - rank, tag=-1)
    raised(RuntimeError, "`dst` must be one of", dist.reduce, x, 2)
    raised(ValueError, "`src` or `group_src`", dist.broadcast, x)
    raised(ValueError, "`src` must be one of", dist.broadcast, x, 2)
    raised(RuntimeError, "cannot share alike", dist.all_to_all_single, ampc.ones(3), ampc.ones(3))
    raised(ValueError, "there already", dist.init_process_group)
    raised(TypeError, "`timeout` must be a datetime.timedelta", dist.monitored_barrier, timeout=3)
    raised(ValueError, "`ranks` must be different", dist.new_group, [0, 2])
    for wrong in ("01", [0.0, 1], 1):
        raised(TypeError, f"`ranks` must be a list of ints, got {wrong!r}", dist.new_group, wrong)
    raised(ValueError, "`group` must be a ProcessGroup", dist.all_reduce, x, group="all")


@ranks(2)
def a_group_again(rank, size):
    old = dist.new_group([0, 1])
    dist.destroy_process_group()
    raised(RuntimeError, "the group was destroyed", dist.all_reduce, ampc.ones(1), group=old)
    assert not dist.is_initialized()
    raised(ValueError, "has not been initialized", dist.get_world_size)
    raised(ValueError, "call init_process_group() first", dist.all_reduce, ampc.ones(1))
    raised(RuntimeError, "start them with `ampc run --nproc 3", dist.init_process_group, world_size=3)
    raised(RuntimeError, "backend='nccl': CUDA cannot be used", dist.init_process_group, "nccl")
    raised(ValueError, "unknown backend", dist.init_process_group, "smoke")
    dist.init_process_group("cpu:gloo", "env://", rank=rank, world_size=size)
    x = ampc.ones(1)
    dist.all_reduce(x)
    assert x.item() == 2


def shared_folder():
    """A new folder, the same in all ranks."""
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    return Path(folder[0])


def run(folder, programs, backend=None, prepare=bool):
    """Runs those for this number of processes, or of these the ones that PROGRAMS names, and writes what went wrong. ``prepare(rank)`` comes first."""
    dist.init_process_group(backend, timeout=timedelta(seconds=30))
    rank, size, wrong = dist.get_rank(), dist.get_world_size(), {}
    wanted = os.environ.get("PROGRAMS", "").split()
    prepare(rank)
    for name, (sizes, f) in programs.items():
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
    sys.modules["ranks"] = sys.modules["__main__"]
    import distributed_training  # noqa: F401  adds its programs

    run(sys.argv[1], PROGRAMS)
