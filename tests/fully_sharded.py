"""What test_distributed_sharded.py runs of fully_shard, beside what sharded_training.py has."""

import contextlib
import functools
import math

import numpy as np
from distributed_training import batch, made, no_reports, row, same_everywhere, share, trained
from ranks import device, raised
from sharded_training import bytes_of, close, mixed, ranks, syncs

import ampc
from ampc import nn
from ampc.distributed import fsdp
from ampc.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from ampc.distributed.device_mesh import init_device_mesh
from ampc.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from ampc.distributed.tensor import DTensor
from ampc.distributed.tensor.placement_types import Replicate, Shard
from ampc.nn.parallel import DistributedDataParallel as DDP

F = nn.functional


class Tower(nn.Module):
    """Blocks, of sizes that processes cannot share alike, and an embedding that is the last layer's weight as well."""

    def __init__(self, tied=False, width=6):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(width, 11) for _ in range(3)])
        self.last, self.other = nn.Linear(width, 3), nn.Linear(width, 3)
        if tied:
            self.other.weight = self.last.weight

    def forward(self, x):
        h = self.blocks(x)
        return self.last(h) + self.other(h)


class Block(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def sharded(model, **options):
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def full_row(model):
    """All parameters in a row, gathered."""
    return ampc.cat([p.full_tensor().reshape(-1).double() if isinstance(p, DTensor) else p.detach().reshape(-1).double() for p in model.parameters()]).cpu().numpy()


def steps_of(model, rank, size, optimizer=None, steps=5):
    optimizer = ampc.optim.AdamW(model.parameters(), lr=0.02) if optimizer is None else optimizer
    losses = []
    for step in range(steps):
        x, y = share(rank, size, step)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, full_row(model)


@ranks(2, 4)
def fully_shard_is_one_process_and_ddp(rank, size):
    for tied in (False, True):
        tower = functools.partial(Tower, tied)
        one = made(tower)
        want = trained(one, 5, optimizer=ampc.optim.AdamW(one.parameters(), lr=0.02))
        plain = DDP(made(tower))
        losses, _ = steps_of(plain, rank, size)
        for options in ({}, {"reshard_after_forward": True}, {"reshard_after_forward": False}):
            got = [steps_of(sharded(made(tower), **options), rank, size) for _ in range(2)]
            close(got[0][1], want), close(got[0][0], losses)
            assert np.array_equal(got[0][1], got[1][1]) and got[0][0] == got[1][0]  # bit for bit
            same_everywhere(got[0][1])
        alone = fully_shard(made(tower))  # the model as one group
        close(steps_of(alone, rank, size)[1], want)
        assert (alone.last.weight is alone.other.weight) == tied


@ranks(4)
def neighbours_keep_the_whole_together(rank, size):
    one = made(Tower)
    want = trained(one, 5, optimizer=ampc.optim.AdamW(one.parameters(), lr=0.02))
    losses, expected = steps_of(sharded(made(Tower), reshard_after_forward=True), rank, size)
    model = sharded(made(Tower), reshard_after_forward=2)
    got, found = steps_of(model, rank, size)
    close(found, want)
    assert got == losses and np.array_equal(found, expected)  # the same values, gathered another way
    x, y = share(rank, size)
    loss = F.cross_entropy(model(x), y)
    groups = [s.group for s in model._fsdp_state.schedule.states]
    for g in groups:
        (_, row), = g._kept
        assert not g.is_full and row.numel() == 2 * sum(p.width for p in g.params) and g._near.ranks == [rank // 2 * 2, rank // 2 * 2 + 1]
    loss.backward()
    assert not any(g._kept or g._coming or g.is_full for g in groups)
    loss = F.cross_entropy(model(x), y)
    with ampc.no_grad():
        model.last.bias.zero_()  # what is kept is out of date then
    raised(RuntimeError, "modified in place", loss.backward)
    with ampc.no_grad():
        model(x)
    assert not any(g._kept for g in groups) and float(model.last.bias.full_tensor().sum()) == 0


@ranks(2, 4)
def what_a_sharded_module_is(rank, size):
    model = made(Tower)
    numels, names = [p.numel() for p in model.parameters()], [n for n, _ in model.named_parameters()]
    assert sharded(model) is model and isinstance(model, Tower) and isinstance(model, fsdp.FSDPModule) and type(model).__name__ == "FSDPTower"
    assert [n for n, _ in model.named_parameters()] == names and [p.numel() for p in model.parameters()] == numels
    p = model.blocks[0].up.weight
    assert isinstance(p, nn.Parameter) and isinstance(p, DTensor) and p.shape == (11, 6) and p.placements == (Shard(0),)
    each = -(-11 // size)
    assert p.to_local().shape == (min(each, 11 - rank * each), 6) and repr(p).startswith("Parameter containing:\nDTensor(")
    seen, told = [], []
    p.register_post_accumulate_grad_hook(lambda q: told.append(q is p and q.grad is not None))
    raised(NotImplementedError, "register_post_accumulate_grad_hook is called", p.register_hook, print)
    model.blocks[1].up.register_forward_hook(lambda m, args, out: seen.append(type(m.weight)))
    x, y = share(rank, size)
    out = model(x)
    assert type(model.last.weight) is nn.Parameter and isinstance(model.blocks[1].up.weight, DTensor)  # the outermost stays for backward
    F.cross_entropy(out, y).backward()
    assert isinstance(model.last.weight, DTensor) and isinstance(p.grad, DTensor) and p.grad.shape == (11, 6) and p.grad.full_tensor().shape == (11, 6)
    assert seen == [nn.Parameter] and told == [True]
    raised(RuntimeError, "cannot be copied", __import__("copy").deepcopy, model)
    raised(RuntimeError, "cannot be saved", __import__("pickle").dumps, p)
    model.blocks[0].unshard()
    assert type(model.blocks[0].up.weight) is nn.Parameter and model.blocks[0].up.weight.shape == (11, 6)
    full = model.blocks[0].up.weight
    model.blocks[0].reshard()
    raised(ValueError, "spread over the processes", lambda: full + 1)
    handle = model.blocks[0].unshard(async_op=True)
    handle.wait()
    assert ampc.equal(model.blocks[0].up.weight, p.full_tensor())
    model.blocks[0].reshard()
    with ampc.no_grad():
        model(x)
    assert all(isinstance(q, DTensor) for q in model.parameters())


@ranks(2, 4)
def memory_of_a_rank(rank, size):
    """A rank has its rows of parameters, gradients and moments, and while it computes the parameters of two groups at most beside the outermost's."""
    model = sharded(made(lambda: Tower(width=64)), reshard_after_forward=True)
    optimizer = ampc.optim.AdamW(model.parameters(), lr=0.01)
    x = ampc.ones(2, 64)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    def rows(n):
        each = -(-n // size)
        return max(0, min(each, n - rank * each))

    elements = sum(rows(p.shape[0]) * math.prod(p.shape[1:]) for p in model.parameters())
    for tensors in (list(model.parameters()), [p.grad for p in model.parameters()]):
        assert sum(t.to_local().untyped_storage().nbytes() for t in tensors) == 4 * elements
    assert bytes_of(optimizer) == 8 * elements
    groups = [s.group for s in model._fsdp_state.schedule.states]
    assert all(param._storage.nbytes() == 0 for g in groups for param in g.params)  # nothing gathered is left
    full, most = [sum(4 * math.prod(p.shape) for p in g.params) for g in groups], []
    blocks = list(model.blocks)
    for b in blocks:
        b.register_forward_hook(lambda *_: most.append(sum(p._storage.nbytes() for g in groups for p in g.params)))
    model(x)
    assert max(most) <= 2 * full[0] + full[-1] and 0 < max(most) < sum(full)


@ranks(2, 4)
def fully_shard_with_a_scaler(rank, size):
    for accumulate in (1, 2):
        plain = DDP(made(Tower))
        losses, norms = mixed(plain, ampc.optim.AdamW(plain.parameters(), lr=0.02), rank, size, functools.partial(overflow, plain.module.last), 5,
                              accumulate, syncs(plain))
        ampc.doctor.reports(clear=True)
        runs = []
        for _ in range(2):
            model = sharded(made(Tower))
            optimizer = ampc.optim.AdamW(model.parameters(), lr=0.02)
            got = mixed(model, optimizer, rank, size, functools.partial(overflow, model.last), 5, accumulate, syncs_of_shards(model))
            runs.append(full_row(model))
        no_reports()
        assert np.allclose(got[0], losses, rtol=5e-3, atol=1e-3), (got[0], losses)
        finite = np.isfinite(norms)
        assert np.array_equal(finite, np.isfinite(got[1])) and np.allclose(np.array(got[1])[finite], np.array(norms)[finite], rtol=5e-3)
        assert np.allclose(runs[0], full_row(plain.module), atol=5e-3) and np.array_equal(*runs)


def syncs_of_shards(model):
    @contextlib.contextmanager
    def context(last):
        model.set_requires_gradient_sync(last)
        yield

    return context


class _Overflow(ampc.autograd.Function):
    @staticmethod
    def forward(ctx, w):
        ctx.shape = w.shape
        return w.sum() * 0

    @staticmethod
    def backward(ctx, g):
        grad = ampc.zeros(*ctx.shape)
        grad[0, 0] = math.inf  # in the rows of one process alone
        return grad


def overflow(layer):
    """0, whose gradient for the layer's weight, which is whole within a pass, is infinite in one row."""
    return _Overflow.apply(layer.weight)


@ranks(2)
def the_norm_is_of_all_rows(rank, size):
    model, plain = sharded(made(Tower)), DDP(made(Tower))
    x, y = share(rank, size)
    for m in (model, plain):
        F.cross_entropy(m(x), y).backward()
    for order in (2.0, 1.0, 3.0, math.inf):
        want = float(nn.utils.clip_grad_norm_(plain.parameters(), 1e9, order))
        assert math.isclose(float(nn.utils.clip_grad_norm_(model.parameters(), 1e9, order)), want, rel_tol=1e-5), order
        assert math.isclose(float(nn.utils.get_total_norm([p.grad for p in model.parameters()], order)), want, rel_tol=1e-5)
    before = float(nn.utils.clip_grad_norm_(model.parameters(), 0.01))
    assert before > 0.01 and math.isclose(float(nn.utils.get_total_norm([p.grad for p in model.parameters()])), 0.01, rel_tol=1e-3)
    for p in model.parameters():
        p.grad.detach().fill_(math.inf if rank else 0.0)
    raised(RuntimeError, "cannot be clipped", nn.utils.clip_grad_norm_, model.parameters(), 1.0, error_if_nonfinite=True)


@ranks(2)
def accumulation_and_frozen_parameters(rank, size):
    for frozen in ((), ("up.weight",), ("up.weight", "up.bias", "norm.weight", "norm.bias", "down.weight", "down.bias")):
        model, plain = made(Tower), made(Tower)
        for m in (model, plain):
            for name, p in m.named_parameters():
                p.requires_grad_(not name.endswith(tuple(frozen)) if frozen else True)
        model, plain = sharded(model, reshard_after_forward=True), DDP(plain)
        for m in (model, plain):
            optimizer = ampc.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=0.1)
            for step in range(2):
                optimizer.zero_grad()
                for part in range(3):
                    x, y = share(rank, size, 3 * step + part)
                    if m is model:
                        model.set_requires_gradient_sync(part == 2)
                    with plain.no_sync() if m is plain and part < 2 else contextlib.nullcontext():
                        F.cross_entropy(m(x), y).backward()
                        if m is model and part < 2:
                            assert all(p.grad is None for p in m.parameters())
                optimizer.step()
        close(full_row(model), full_row(plain.module))
        assert all((p.grad is None) != p.requires_grad for p in model.parameters())
    model.set_requires_gradient_sync(True)  # gradients of several synchronized passes add up, too
    before = [p.grad.to_local().clone() for p in model.parameters() if p.requires_grad]
    F.cross_entropy(model(x), y).backward()
    assert any(not ampc.equal(b, p.grad.to_local()) for b, p in zip(before, [p for p in model.parameters() if p.requires_grad]))


@ranks(2)
def dtypes_by_policy(rank, size):
    policy = MixedPrecisionPolicy(param_dtype=ampc.bfloat16, reduce_dtype=ampc.float32, output_dtype=ampc.float32)
    seen = []

    def run():
        model = sharded(made(Tower), mp_policy=policy)
        model.blocks[0].up.register_forward_hook(lambda m, args, out: seen.append((m.weight.dtype, args[0].dtype, out.dtype)))
        return steps_of(model, rank, size)

    losses, values = run()
    assert set(seen) == {(ampc.bfloat16,) * 3}
    want, plain = steps_of(DDP(made(Tower)), rank, size)
    assert np.allclose(losses, want, atol=0.05) and np.allclose(values, plain, atol=0.05) and not np.array_equal(values, plain)
    assert np.array_equal(values, run()[1])
    model = sharded(made(Tower), mp_policy=MixedPrecisionPolicy(param_dtype=ampc.bfloat16, cast_forward_inputs=False))
    raised(RuntimeError, "", model, share(rank, size)[0])
    model.reset_iter_state()
    assert model(share(rank, size)[0].to(ampc.bfloat16)).dtype == ampc.bfloat16
    model.set_requires_gradient_sync(False)
    x, y = share(rank, size)
    model = sharded(made(Tower), mp_policy=policy)
    model.set_requires_gradient_sync(False)
    F.cross_entropy(model(x), y).backward()
    group = model.blocks[0]._fsdp_state.group
    assert all(t.dtype == ampc.float32 for t in group._sums.values()) and len(group._sums) == len(group.params)
    raised(ValueError, "`param_dtype` must be a floating-point dtype", MixedPrecisionPolicy, param_dtype=ampc.int32)


@ranks(2)
def the_next_group_is_gathered_ahead(rank, size):
    model = sharded(made(Tower), reshard_after_forward=True)
    coming = []
    for i, block in enumerate(model.blocks):
        block.register_forward_pre_hook(lambda m, args, i=i: coming.append((i, [bool(b._fsdp_state.group._coming) for b in model.blocks])))
    x, y = share(rank, size)
    F.cross_entropy(model(x), y).backward()
    assert coming == [(i, [False] * 3) for i in range(3)]  # the order is not known yet
    coming.clear()
    out = model(x)
    assert coming == [(0, [False, True, False]), (1, [False, False, True]), (2, [False, False, False])]
    back = []
    model.blocks[2].up.weight  # noqa: B018
    for i, block in enumerate(model.blocks):
        for param in block._fsdp_state.group.params[-1:]:
            param.full.register_post_accumulate_grad_hook(lambda p, i=i: back.append((i, [bool(b._fsdp_state.group._coming) for b in model.blocks])))
    F.cross_entropy(out, y).backward()
    assert back == [(2, [False, True, False]), (1, [True, False, False]), (0, [False, False, False])], back
    model.blocks[0].set_modules_to_forward_prefetch([model.blocks[1], model.blocks[2]])
    coming.clear()
    F.cross_entropy(model(x), y).backward()
    assert coming[0] == (0, [False, True, True])


@ranks(2)
def state_dicts_of_sharded_modules(rank, size):
    model, plain = sharded(made(Tower)), made(Tower)
    shards = model.state_dict()
    assert list(shards) == list(plain.state_dict()) and all(isinstance(t, DTensor) for t in shards.values())
    assert all(ampc.equal(shards[k].full_tensor(), t) for k, t in plain.state_dict().items())
    other = sharded(made(Tower, seed=5))
    other.load_state_dict(shards)
    assert np.array_equal(full_row(other), row(plain))
    other = sharded(made(Tower, seed=5))
    other.load_state_dict(plain.state_dict())  # whole tensors: each process takes its rows
    assert np.array_equal(full_row(other), row(plain))
    steps_of(model, rank, size, steps=2)
    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    assert np.array_equal(np.concatenate([full[k].double().cpu().numpy().reshape(-1) for k in full]), full_row(model))
    on_zero = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    assert bool(on_zero) == (rank == 0)
    other = sharded(made(Tower, seed=5))
    set_model_state_dict(other, on_zero, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    assert np.array_equal(full_row(other), full_row(model))
    other = made(Tower, seed=5)
    set_model_state_dict(other, full)
    assert np.array_equal(row(other), full_row(model))
    optimizer, other = ampc.optim.AdamW(model.parameters(), lr=0.02), sharded(made(Tower, seed=5))
    steps_of(model, rank, size, optimizer, 2)
    other.load_state_dict(model.state_dict())
    later = ampc.optim.AdamW(other.parameters(), lr=0.5)
    later.load_state_dict(optimizer.state_dict())  # this process' rows
    assert steps_of(other, rank, size, later)[0] == steps_of(model, rank, size, optimizer)[0] and np.array_equal(full_row(other), full_row(model))
    shards = get_model_state_dict(model)
    assert all(isinstance(t, DTensor) for t in shards.values())
    raised(RuntimeError, "cannot be saved", ampc.save, shards, "/tmp/never.safetensors")
    raised(RuntimeError, "cannot be saved", ampc.save, shards, "/tmp/never.pt")


@ranks(2)
def checkpoints_and_several_uses(rank, size):
    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(6, 11), Block(6, 11)])
            self.last = nn.Linear(6, 3)

        def forward(self, x, checkpoints=None):
            for block in (self.blocks[0], self.blocks[1], self.blocks[0]):  # one is used twice
                x = block(x) if checkpoints is None else ampc.utils.checkpoint.checkpoint(block, x, use_reentrant=checkpoints)
            return self.last(x)

    for checkpoints in (None, False, True):
        model, plain = sharded(made(Again), reshard_after_forward=True), made(Again)
        for step in range(2):
            x, y = share(rank, size, step)
            X, Y = batch(step)
            x.requires_grad_()
            F.cross_entropy(model(x, checkpoints), y).backward()
            F.cross_entropy(plain(X), Y).backward()
        close(ampc.cat([p.grad.full_tensor().reshape(-1) for p in model.parameters()]).cpu().numpy(),
              ampc.cat([p.grad.reshape(-1) for p in plain.parameters()]).cpu().numpy())
        assert all(isinstance(p, DTensor) for p in model.parameters())


@ranks(2)
def parts_that_a_pass_leaves_out(rank, size):
    class Either(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks, self.last = nn.ModuleList([Block(6, 11), Block(6, 11)]), nn.Linear(6, 3)

        def forward(self, x, which):
            return self.last(self.blocks[which](x))

    model, plain = sharded(made(Either)), made(Either)
    for step in range(4):
        x, y = share(rank, size, step)
        F.cross_entropy(model(x, step % 2), y).backward()
        F.cross_entropy(plain(batch(step)[0], step % 2), batch(step)[1]).backward()
        assert step or all(p.grad is None for p in model.blocks[1].parameters())
    close(ampc.cat([p.grad.full_tensor().reshape(-1) for p in model.parameters()]).cpu().numpy(), ampc.cat([p.grad.reshape(-1) for p in plain.parameters()]).cpu().numpy())


@ranks(2)
def a_pass_that_fails(rank, size):
    model = sharded(made(Tower))
    x, y = share(rank, size)

    def stop(grad):
        raise ValueError("stop")

    handle = model.blocks[1].down.register_forward_hook(lambda m, args, out: out.register_hook(stop) and None)
    optimizer = ampc.optim.AdamW(model.parameters(), lr=0.02)
    raised(ValueError, "stop", F.cross_entropy(model(x), y).backward)
    handle.remove()
    for p in model.parameters():
        p.grad = None
    handle = model.blocks[1].register_forward_hook(lambda *_: stop(0))
    raised(ValueError, "stop", model, x)
    handle.remove()
    raised(ValueError, "is gathered for a pass", ampc.optim.AdamW, [model.last.weight])
    assert np.array_equal(steps_of(model, rank, size, optimizer)[1], steps_of(sharded(made(Tower)), rank, size)[1])


@ranks(4)
def replicas_of_shards(rank, size):
    mesh = init_device_mesh(device(), (2, 2), mesh_dim_names=("replicate", "shard"))
    one = made(Tower)
    want = trained(one, 5, optimizer=ampc.optim.AdamW(one.parameters(), lr=0.02))
    model = sharded(made(Tower), mesh=mesh)
    close(steps_of(model, rank, size)[1], want)
    p = model.blocks[0].up.weight
    assert p.placements == (Replicate(), Shard(0)) and p.to_local().shape == (6 if rank % 2 == 0 else 5, 6)
    x, y = share(rank, size)
    plain = DDP(made(Tower), process_group=mesh.get_group("shard"))
    model = sharded(made(Tower), mesh=mesh)
    model.set_requires_all_reduce(False)
    for m in (model, plain):
        F.cross_entropy(m(x), y).backward()
    close(model.last.bias.grad.full_tensor().cpu().numpy(), plain.module.last.bias.grad.cpu().numpy())
    losses, norms = mixed(sharded_ := sharded(made(Tower), mesh=mesh), ampc.optim.SGD(sharded_.parameters(), lr=0.1), rank, size,
                          functools.partial(overflow, sharded_.last))
    same_everywhere(full_row(sharded_))


@ranks(2)
def steps_between_passes(rank, size):
    """A forward pass without backward leaves nothing old behind."""
    model, plain = sharded(made(Tower), reshard_after_forward=False), DDP(made(Tower))
    for m in (model, plain):
        optimizer = ampc.optim.SGD(m.parameters(), lr=0.1)
        x, y = share(rank, size)
        F.cross_entropy(m(x), y).backward()
        m(x)  # gathered, and not given back
        optimizer.step()
        optimizer.zero_grad()
        F.cross_entropy(m(x), y).backward()
        optimizer.step()
    close(full_row(model), full_row(plain.module))
    optimizer = ampc.optim.SGD(model.parameters(), lr=0.1)
    old = model(x).sum()
    optimizer.step()
    model(x)  # gathers other values than the graph of `old` has kept
    raised(RuntimeError, "modified", old.backward)
    model.reset_iter_state()  # so that it holds its shards
    with ampc.no_grad():
        for p, q in zip(model.parameters(), plain.parameters()):
            p.copy_(q)
    model.set_gradient_divide_factor(1.0)
    model.set_reshard_after_backward(False)
    for m in (model, plain):
        for p in m.parameters():
            p.grad = None
        F.cross_entropy(m(x), y).backward()
    grad = model._fsdp_state.group.params[0].shard.grad.full_tensor()
    assert type(model.last.weight) is nn.Parameter
    close(grad.cpu().numpy(), 2 * plain.module.last.weight.grad.cpu().numpy())


@ranks(2)
def what_fully_shard_refuses(rank, size):
    raised(ValueError, "expected a Module", fully_shard, 3)
    raised(ValueError, "ModuleList has no forward", fully_shard, nn.ModuleList([nn.Linear(2, 2)]))
    raised(ValueError, "a number that divides the 2 processes", fully_shard, nn.Linear(2, 2), reshard_after_forward=3)
    assert not fully_shard(nn.Linear(2, 2), reshard_after_forward=1)._fsdp_state.reshard_after_forward
    assert fully_shard(nn.Linear(2, 2), reshard_after_forward=2)._fsdp_state.reshard_after_forward
    raised(NotImplementedError, "parameters are spread by Shard(0)", fully_shard, nn.Linear(2, 2), shard_placement_fn=lambda p: Shard(1))
    raised(ValueError, "on meta", fully_shard, nn.Linear(2, 2, device="meta"))
    single = nn.Module()
    single.p = nn.Parameter(ampc.tensor(1.0))
    raised(ValueError, "p has no dimensions", fully_shard, single)
    model = Tower(tied=True)
    fully_shard(model.last)
    raised(ValueError, "is sharded already", fully_shard, model.last)
    raised(ValueError, "other.weight is tied to a parameter that another call has sharded", fully_shard, model)
    raised(RuntimeError, "fully_shard: the ranks' modules differ: weight of rank 0", fully_shard, nn.Linear(2, 2 + rank))
    model = made(Tower)
    ignored = {model.last.weight}
    sharded(model, ignored_params=ignored)
    assert type(model.last.weight) is nn.Parameter and isinstance(model.last.bias, DTensor)
    for kind in (ampc.optim.Muon, ampc.optim.Adafactor, ampc.optim.LBFGS):
        raised(NotImplementedError, "all elements of a parameter together", kind, [model.blocks[0].up.weight])
    model.float(), model.to(device())
    raised(RuntimeError, "has changed its dtype", model.double)
    model = sharded(made(Tower))
    raised(NotImplementedError, "`assign` is not there", model.load_state_dict, made(Tower).state_dict(), assign=True)
    model.blocks[0].up.bias = nn.Parameter(ampc.zeros(11))
    raised(RuntimeError, "another parameter was assigned to up.bias", model, share(rank, size)[0])
    raised(NotImplementedError, "fully_shard", fsdp.FullyShardedDataParallel, made())
    fsdp.register_fsdp_forward_method(nn.Linear(2, 2), "forward")


@ranks(2)
def methods_and_lists(rank, size):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 5), nn.Linear(5, 3)

        def forward(self, x):
            return self.b(self.a(x))

        def encode(self, x):
            return self.a(x)

    model, plain = made(Two), made(Two)
    fully_shard([model.a, model.b])
    assert model.a._fsdp_state is model.b._fsdp_state
    fully_shard(model)
    x, y = share(rank, size)
    for _ in range(2):
        F.cross_entropy(model(x), y).backward()
        F.cross_entropy(plain(batch()[0]), batch()[1]).backward()
    close(ampc.cat([p.grad.full_tensor().reshape(-1) for p in model.parameters()]).cpu().numpy(), ampc.cat([p.grad.reshape(-1) for p in plain.parameters()]).cpu().numpy())
    model = nn.Sequential(nn.Embedding(8, 6), nn.Linear(6, 3))
    fully_shard(model[0])
    fully_shard(model)
    model[0].set_unshard_in_backward(False)
    rows, counts = model[0]._fsdp_state.group, []
    gather = rows.gather
    rows.gather = lambda: counts.append(1) or gather()
    model(ampc.tensor([rank, 5])).sum().backward()
    assert len(counts) == 1  # for forward alone
    grad, weight = model[0].weight.grad.full_tensor(), model[1].weight.full_tensor().sum(0)
    assert all(ampc.allclose(grad[i], weight * (1.0 if i == 5 else 0.5 if i < 2 else 0.0)) for i in range(8))
    model = fully_shard(made(Two))
    raised(NotImplementedError, "Parameters of a sharded module are whole while it runs", model.encode, x)
    fsdp.register_fsdp_forward_method(model, "encode")
    close(model.encode(x).detach().cpu().numpy(), made(Two).encode(x).detach().cpu().numpy())
