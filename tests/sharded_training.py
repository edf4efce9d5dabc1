"""What test_distributed_sharded.py runs in several processes, as ranks.py does: optimizers and modules that are spread over processes, meshes of
processes, and ranks with different numbers of batches."""

import contextlib
import math
import sys

import numpy as np
import ranks as base
from distributed_training import _overflows, made, no_reports, row, same_everywhere, share, trained
from ranks import raised

import ampc
import ampc.distributed as dist
from ampc import nn
from ampc.distributed.algorithms.join import Join
from ampc.distributed.device_mesh import DeviceMesh, init_device_mesh
from ampc.distributed.fsdp import ShardedGradScaler
from ampc.distributed.optim import ZeroRedundancyOptimizer as Zero
from ampc.distributed.tensor import DTensor, distribute_tensor
from ampc.distributed.tensor.placement_types import Replicate, Shard
from ampc.nn.parallel import DistributedDataParallel as DDP

PROGRAMS = {}
F = nn.functional


def ranks(*sizes):
    return base.ranks(*sizes, programs=PROGRAMS)


def close(got, want):
    assert np.allclose(got, want, rtol=1e-4, atol=1e-5), np.abs(np.asarray(got) - want).max()


# -- meshes --------------------------------------------------------------------------------------------------------------


@ranks(4)
def meshes(rank, size):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    assert (mesh.shape, mesh.ndim, mesh.size(), mesh.size(0), mesh.mesh.tolist()) == ((2, 2), 2, 4, 2, [[0, 1], [2, 3]])
    assert mesh.get_coordinate() == [rank // 2, rank % 2] and mesh.get_local_rank("shard") == rank % 2 and mesh.get_local_rank(0) == rank // 2
    assert mesh.get_group("replicate").ranks == [rank % 2, rank % 2 + 2] and mesh.get_group(1).ranks == [rank // 2 * 2, rank // 2 * 2 + 1]
    part = mesh["shard"]
    assert part.get_group() is mesh.get_group(1) is mesh.get_all_groups()[1] and part.mesh.tolist() == part.get_group().ranks and part.get_local_rank() == rank % 2
    assert mesh["replicate", "shard"] == mesh and part != mesh and str(mesh) == "DeviceMesh((replicate=2, shard=2), 'cpu')"
    raised(RuntimeError, "say which by `mesh_dim`", mesh.get_group)
    raised(KeyError, "the mesh has the dimensions", mesh.get_group, "model")
    raised(KeyError, "in the order of", lambda: mesh["shard", "replicate"])
    raised(RuntimeError, "needs 8 processes, and there are 4", init_device_mesh, "cpu", (2, 4))
    raised(RuntimeError, "2 different names", init_device_mesh, "cpu", (2, 2), mesh_dim_names=("a",))
    raised(RuntimeError, "without a number", init_device_mesh, "cuda:0", (4,))
    raised(ValueError, "different ranks", DeviceMesh, "cpu", [0, 0])
    pair = DeviceMesh("cpu", [1, 3])
    assert pair.get_coordinate() == (None if rank % 2 == 0 else [rank // 2])
    if rank % 2 == 0:
        raised(RuntimeError, f"rank {rank} is not in the mesh", pair.get_group)
    whole = init_device_mesh("cpu", (4,))
    assert whole.get_group() is dist.group.WORLD and DeviceMesh.from_group(whole.get_group(), "cpu") == whole
    both = DeviceMesh.from_group(mesh.get_all_groups(), "cpu", mesh.mesh, mesh_dim_names=("replicate", "shard"))
    assert both == mesh and hash(both) == hash(mesh)
    raised(ValueError, "and `mesh` [", DeviceMesh.from_group, mesh.get_group(0), "cpu", [0, 1])


@ranks(4)
def ddp_over_a_part_of_a_mesh(rank, size):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    model, plain = DDP(made(), device_mesh=mesh["b"]), DDP(made(), process_group=mesh.get_group("b"))
    assert np.array_equal(trained(model, 2, rank, size), trained(plain, 2, rank, size))
    raised(RuntimeError, "must have one dimension, got 2", DDP, made(), device_mesh=mesh)
    raised(RuntimeError, "exclude each other", DDP, made(), process_group=mesh.get_group("b"), device_mesh=mesh["b"])


@ranks(2, 4)
def tensors_that_are_spread(rank, size):
    mesh = init_device_mesh("cpu", (size,))
    for rows in (size, 2 * size, 5, 1):
        full = ampc.arange(rows * 3.0).view(rows, 3)
        t = distribute_tensor(full + rank, mesh, [Shard(0)])  # rank 0's values count
        assert t.shape == (rows, 3) and t.numel() == rows * 3 and t.size(1) == 3 and len(t) == rows
        chunks = full.chunk(size)
        assert ampc.equal(t.to_local(), chunks[rank] if rank < len(chunks) else full[:0]) and ampc.equal(t.full_tensor(), full)
        assert ampc.equal(t.redistribute(placements=[Replicate()]).to_local(), full)
    assert DTensor.from_local(ampc.ones(2, 3), mesh, [Shard(0)]).shape == (2 * size, 3)
    assert ampc.equal(DTensor.from_local(ampc.full((2,), float(rank)), mesh, run_check=True).to_local(), ampc.zeros(2))
    assert repr(t).startswith("DTensor(local_tensor=tensor(") and "placements=(Shard(dim=0),)" in repr(t)
    for f in (t.norm, t.sum, t.numpy, t.t, lambda: t + 1, lambda: ampc.norm(t), lambda: t @ t, lambda: t[0], lambda: ampc.t(t), lambda: list(t),
              t.untyped_storage, lambda: ampc.linalg.vector_norm(t), lambda: F.linear(ampc.ones(2, 3), t), lambda: t.add_(1).exp_()):
        raised(NotImplementedError, "full_tensor()", f)
    t.zero_().add_(distribute_tensor(full, mesh, [Shard(0)]), alpha=2).mul_(3).sub_(full)
    assert ampc.equal(t.full_tensor(), 5 * full) and ampc.equal(t.clone().full_tensor(), 5 * full)
    raised(RuntimeError, "must have the whole's shape", t.add_, ampc.ones(7, 3))
    raised(NotImplementedError, "placements are Replicate(), or once Shard(0)", distribute_tensor, full, mesh, [Shard(1)])
    raised(TypeError, "distribute_tensor(tensor, mesh, placements)", DTensor, full)


# -- ZeRO ----------------------------------------------------------------------------------------------------------------


def bytes_of(optimizer):
    """Of what the optimizer keeps for each element."""
    return sum(t.numel() * t.element_size() for state in optimizer.state.values() for t in state.values() if isinstance(t, ampc.Tensor) and t.ndim)


def greedy(numels, size):
    """How many elements each rank has when the largest go first, each to the rank with the fewest."""
    sizes = [0] * size
    for n in sorted(numels, reverse=True):
        sizes[sizes.index(min(sizes))] += n
    return sizes


@ranks(2, 4)
def zero_is_ddp(rank, size):
    kinds = ((ampc.optim.AdamW, {"lr": 0.05}), (ampc.optim.SGD, {"lr": 0.1, "momentum": 0.9}), (ampc.optim.NAdam, {"lr": 0.01}))
    for kind, options in kinds:
        plain = DDP(made())
        want = trained(plain, 5, rank, size, kind(plain.parameters(), **options))
        for view in (False, True):
            got = []
            for _ in range(2):
                model = DDP(made())
                got.append(trained(model, 5, rank, size, Zero(model.parameters(), kind, parameters_as_bucket_view=view, **options)))
            assert np.array_equal(got[0], got[1]) and np.array_equal(got[0], want), (kind, view)  # bit for bit: the same updates of the same gradients
            same_everywhere(got[0])


@ranks(2, 4)
def zero_keeps_its_share_of_the_state(rank, size):
    model = DDP(made())
    optimizer = Zero(model.parameters(), ampc.optim.AdamW, lr=0.05)
    trained(model, 2, rank, size, optimizer)
    shares = greedy([p.numel() for p in model.parameters()], size)
    assert bytes_of(optimizer) == bytes_of(optimizer.optim) == 8 * shares[rank]  # two moments of four bytes
    half = DDP(made().to(ampc.bfloat16))
    optimizer = Zero(half.parameters(), ampc.optim.AdamW, lr=0.05, rounding="master")
    x, y = share(rank, size)
    for _ in range(2):
        F.cross_entropy(half(x.to(ampc.bfloat16)).float(), y).backward()
        optimizer.step(zero_grad=True)
        assert all(not p.grad.any() for p in half.parameters())
    assert bytes_of(optimizer) == 12 * shares[rank]  # and a master copy
    same_everywhere(row(half))


@ranks(2)
def zero_saves_and_loads(rank, size):
    plain, model = DDP(made()), DDP(made())
    optimizer, zero = ampc.optim.AdamW(plain.parameters(), lr=0.05), Zero(model.parameters(), ampc.optim.AdamW, lr=0.05)
    raised(RuntimeError, f"consolidate_state_dict(to={rank})", zero.state_dict)
    trained(plain, 3, rank, size, optimizer), trained(model, 3, rank, size, zero)
    zero.consolidate_state_dict(to=1)
    if rank == 0:
        raised(RuntimeError, "not gathered in this process", zero.state_dict)
    want, saved = optimizer.state_dict(), [zero.state_dict() if rank == 1 else None]
    dist.broadcast_object_list(saved, 1)
    assert saved[0]["param_groups"] == want["param_groups"] and list(saved[0]["state"]) == list(want["state"])
    for number, state in want["state"].items():
        assert all(ampc.equal(v.cpu(), saved[0]["state"][number][k]) if isinstance(v, ampc.Tensor) else v == saved[0]["state"][number][k] for k, v in state.items())
    again = made()
    again.load_state_dict(plain.module.state_dict())
    again = DDP(again)
    other = Zero(again.parameters(), ampc.optim.AdamW, lr=0.9)
    other.load_state_dict(saved[0])
    assert other.param_groups[0]["lr"] == other.optim.param_groups[0]["lr"] == 0.05 and bytes_of(other) == bytes_of(zero)
    assert np.array_equal(trained(again, 2, rank, size, other), trained(plain, 2, rank, size, optimizer))
    raised(ValueError, "`to` must be a rank from 0 to 1", zero.consolidate_state_dict, 2)
    low = made().bfloat16()
    zero = Zero(low.parameters(), ampc.optim.AdamW)
    for p in low.parameters():
        p.grad = ampc.ones_like(p)
    zero.step()
    zero.consolidate_state_dict(to=0)
    saved = [zero.state_dict() if rank == 0 else None]
    dist.broadcast_object_list(saved, 0)
    zero.load_state_dict(saved[0])
    assert {v.dtype for s in zero.state.values() for v in s.values() if isinstance(v, ampc.Tensor)} == {ampc.float32}


@ranks(2)
def zero_with_groups(rank, size):
    def optimizers(model):
        first, rest = list(model.module.first.parameters()), [*model.module.norm.parameters(), *model.module.last.parameters()]
        yield Zero([{"params": first, "lr": 0.01}], ampc.optim.SGD, lr=0.1, momentum=0.9), rest
        yield ampc.optim.SGD([{"params": first, "lr": 0.01}], lr=0.1, momentum=0.9), rest

    found = []
    for number in range(2):
        model = DDP(made())
        optimizer, rest = list(optimizers(model))[number]
        optimizer.param_groups[0]["momentum"] = 0.8
        optimizer.add_param_group({"params": rest, "momentum": 0.5})
        assert [g["momentum"] for g in optimizer.param_groups] == [0.8, 0.5]
        schedule = ampc.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        for step in range(3):
            x, y = share(rank, size, step)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            schedule.step()
            if step == 1:
                optimizer.param_groups[1]["momentum"] = 0.1
        assert [g["lr"] for g in optimizer.param_groups] == [0.01 / 8, 0.1 / 8] and optimizer.param_groups[1]["momentum"] == 0.1
        found.append(row(model))
    assert np.array_equal(*found)
    p = nn.Parameter(ampc.ones(2))
    raised(NotImplementedError, "`overlap_with_ddp` is not there", Zero, [p], ampc.optim.SGD, overlap_with_ddp=True, lr=0.1)
    raised(ValueError, "of one dtype", Zero, [p, nn.Parameter(ampc.ones(2).double())], ampc.optim.SGD, lr=0.1)
    raised(TypeError, "got one Tensor", Zero, p, ampc.optim.SGD, lr=0.1)
    loss = Zero([p], ampc.optim.SGD, lr=0.1).step(lambda: (p.grad.copy_(ampc.ones(2)) if p.grad is not None else setattr(p, "grad", ampc.ones(2))) or 3.0)
    assert loss == 3.0 and ampc.allclose(p, ampc.full((2,), 0.9))


def mixed(model, optimizer, rank, size, last, steps=5, accumulate=1, context=contextlib.nullcontext):
    """Trains with autocast, a GradScaler, clipping, and an overflow on the last rank at the second step. Returns what the scaler did, and losses."""
    scaler, skipped, norms, losses = ShardedGradScaler(base.device(), init_scale=2.0**10), [], [], []
    for step in range(steps):
        optimizer.zero_grad()
        for part in range(accumulate):
            x, y = share(rank, size, step * accumulate + part)
            with context(part == accumulate - 1):
                with ampc.autocast(base.device(), dtype=ampc.float16):
                    loss = F.cross_entropy(model(x), y) / accumulate
                if step == 1 and rank == size - 1 and part == accumulate - 1:
                    loss = loss + last()
                scaler.scale(loss).backward()
            losses.append(loss.item())
        scaler.unscale_(optimizer)
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
        scaler.step(optimizer)
        scaler.update()
        skipped.append(scaler.last_step.skipped)
    assert skipped == [False, True, *[False] * (steps - 2)] and scaler.get_scale() == 2.0**9, (skipped, scaler.get_scale())
    same_everywhere(np.array([n if math.isfinite(n) else -1.0 for n in norms]))
    return losses, norms


def syncs(model):
    """Of a pass, by whether it is the last of an accumulation, the context that averages or does not."""
    return lambda last: contextlib.nullcontext() if last else model.no_sync()


@ranks(2, 4)
def zero_with_a_scaler(rank, size):
    found = []
    for make in (lambda m: ampc.optim.AdamW(m.parameters(), lr=0.05), lambda m: Zero(m.parameters(), ampc.optim.AdamW, lr=0.05)):
        for accumulate in (1, 2):
            model = DDP(made())
            ampc.doctor.reports(clear=True)
            mixed(model, make(model), rank, size, lambda model=model: _overflows(model.module.last.weight), accumulate=accumulate, context=syncs(model))
            no_reports()
            found.append(row(model))
    assert np.array_equal(found[0], found[2]) and np.array_equal(found[1], found[3])


# -- ranks with different numbers of batches -----------------------------------------------------------------------------


def uneven(model, optimizer, rank, context, counts):
    with context:
        for step in range(counts[rank]):
            x, y = share(rank, len(counts), step)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return row(model)


def by_hand(counts, divides_by_all=True):
    """The same by one process: each step's gradients are those of the ranks that still have batches."""
    model = made()
    optimizer = ampc.optim.SGD(model.parameters(), lr=0.1)
    for step in range(max(counts)):
        active = [r for r, n in enumerate(counts) if step < n]
        optimizer.zero_grad()
        for r in active:
            x, y = share(r, len(counts), step)
            (F.cross_entropy(model(x), y) / (len(counts) if divides_by_all else len(active))).backward()
        optimizer.step()
    return row(model)


@ranks(2, 4)
def different_numbers_of_batches(rank, size):
    for counts in ([3, 5, 1, 4][:size], [2, 0, 2, 0][:size], [3] * size):
        for divides in (True, False):
            model = DDP(made())
            optimizer = ampc.optim.SGD(model.parameters(), lr=0.1)
            got = uneven(model, optimizer, rank, model.join(divide_by_initial_world_size=divides), counts)
            close(got, by_hand(counts, divides)), same_everywhere(got)
            model = DDP(made(), gradient_as_bucket_view=True)
            zero = Zero(model.parameters(), ampc.optim.SGD, lr=0.1)
            got = uneven(model, zero, rank, Join([model, zero], divide_by_initial_world_size=divides), counts)
            close(got, by_hand(counts, divides)), same_everywhere(got)
            dist.barrier()
    model = DDP(made())
    close(trained(model, 3, rank, size), trained(made(), 3))  # and without a Join as before


@ranks(2)
def join_with_buffers_accumulation_and_a_scaler(rank, size):
    counts = [2, 4]
    model = DDP(nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3)))
    optimizer, scaler = ampc.optim.SGD(model.parameters(), lr=0.1), ampc.amp.GradScaler(base.device(), init_scale=8.0, growth_interval=1)
    with model.join():
        for step in range(counts[rank]):
            for part in range(2):
                x, y = share(rank, size, 2 * step + part)
                with model.no_sync() if part == 0 else contextlib.nullcontext():
                    scaler.scale(F.cross_entropy(model(x), y)).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    same_everywhere(np.concatenate([row(model), model.module[0].running_mean.double().cpu().numpy()]))
    assert int(model.module[0].num_batches_tracked) == 8  # those of the rank that had most
    assert scaler.get_scale() == 8.0 * 2 ** counts[rank]


@ranks(2)
def join_with_a_scaler_and_zero(rank, size):
    model = DDP(made())
    zero, scaler = Zero(model.parameters(), ampc.optim.SGD, lr=0.1), ampc.amp.GradScaler(base.device(), init_scale=8.0)
    if rank == 0:  # has no batches
        model.shadow()
        raised(RuntimeError, "by which a rank without more batches does not divide", zero.join_hook().main_hook)
    else:
        model._begin_joined(True)
        x, y = share(rank, size)
        scaler.scale(F.cross_entropy(model(x), y)).backward()


@ranks(2)
def join_that_throws(rank, size):
    model = DDP(made())
    optimizer, done = ampc.optim.SGD(model.parameters(), lr=0.1), []

    def train():
        with model.join(throw_on_early_termination=True):
            for step in range(2 + 3 * rank):
                x, y = share(rank, size, step)
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                done.append(step)

    raised(RuntimeError, "has no more inputs" if rank == 0 else "at least one rank has no more inputs", train)
    assert done == [0, 1]
    with model.join(enable=False):
        F.cross_entropy(model(share(rank, size)[0]), share(rank, size)[1]).backward()
    raised(ValueError, "at least one", Join, [])
    raised(ValueError, "of one process group", Join, [model, DDP(made(), process_group=dist.new_group([0, 1]))])


if __name__ == "__main__":
    sys.modules["sharded_training"] = sys.modules["__main__"]
    import fully_sharded  # noqa: F401  adds its programs
    import sharded_checkpoints  # noqa: F401
    import sharded_offload  # noqa: F401

    base.run(sys.argv[1], PROGRAMS if len(sys.argv) < 3 else {n: p for n, p in PROGRAMS.items() if n in sys.argv[2:]})
