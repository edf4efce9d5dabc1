"""What test_distributed_training.py runs in several processes, as test_distributed.py does with ``ranks.py``: training by a configuration."""

import logging
import os
import sys
import warnings

import numpy as np
import ranks
from ranks import shared_folder

import ampc
import ampc.distributed as dist
from ampc import doctor, nn
from ampc.nn.parallel import DistributedDataParallel as DDP
from ampc.training import AMPConfig, PerformanceConfig, TrainingOptimizer
from ampc.utils.data import DataLoader, TensorDataset
from ampc.utils.data.distributed import DistributedSampler

PROGRAMS = {}
LOSS = nn.functional.cross_entropy
PLAIN = AMPConfig(enabled=False)


def on(*sizes):
    def add(f):
        PROGRAMS[f.__name__] = sizes, f
        return f

    return add


class Net(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.first, self.norm, self.drop, self.last = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(dropout), nn.Linear(16, 3)
        self.boost = 1.0

    def forward(self, x):
        return self.last(self.drop(nn.functional.gelu(self.norm(self.first(x) * self.boost))))


def batch(step, n=16):
    draw = np.random.default_rng(step)
    return ampc.tensor(draw.normal(size=(n, 6)).astype("f4")), ampc.tensor(draw.integers(0, 3, n))


def share(rank, size, step):
    x, y = batch(step)
    return x[rank::size], y[rank::size]


def setup(config=PLAIN, dropout=0.0, **options):
    ampc.manual_seed(0)
    net = Net(dropout)
    config = PerformanceConfig(amp_config=config, **options) if isinstance(config, AMPConfig) else config
    return TrainingOptimizer(config), net, ampc.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def row(net):
    state = net.state_dict()
    return ampc.cat([state[name].detach().reshape(-1).double() for name in state]).numpy()


def everywhere(value):
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def same_everywhere(values):
    found = everywhere(values)
    assert all(np.array_equal(found[0], each, equal_nan=True) for each in found), found


def one_process(steps, losses, every=1):
    """The loop in one process on the joined batches, written out."""
    _, net, opt = setup()
    for step in range(steps):
        x, y = batch(step)
        loss = LOSS(net(x), y)
        losses.append(loss.item())
        (loss / every).backward()
        if (step + 1) % every == 0:
            opt.step()
            opt.zero_grad()
    return row(net)


# -- gradients, losses and statistics ------------------------------------------------------------------------------------


@on(2, 4)
def ranks_are_one_process_on_the_joined_batch(rank, size):
    want_losses = []
    want = one_process(4, want_losses)
    trainer, net, opt = setup()
    losses = [trainer.training_step(net, *share(rank, size, step), LOSS, opt)["loss"] for step in range(4)]
    assert np.allclose(losses, want_losses, rtol=1e-5) and np.allclose(row(net), want, rtol=1e-3, atol=1e-4)
    same_everywhere(losses)
    same_everywhere(row(net))
    assert isinstance(net.norm, nn.SyncBatchNorm) and "module.first.weight" not in net.state_dict()
    assert not {"sync_batch_norm", "sync_across_gpus", "enable_distributed_accumulation"} & set(trainer.inactive_fields())
    assert trainer.get_amp_stats()["total_steps"] == 4 and trainer.get_amp_stats()["optimizer_steps"] == 4


@on(2)
def without_sync_batch_norm_statistics_are_a_ranks_own(rank, size):
    trainer, net, opt = setup(AMPConfig(enabled=False, sync_batch_norm=False))
    found = [row(net)]
    for step in range(2):
        trainer.training_step(net, *share(rank, size, step), LOSS, opt)
        found.append(row(net))
    assert type(net.norm) is nn.BatchNorm1d
    means = everywhere(net.norm.running_mean.tolist())
    assert means[0] != means[1]  # of the last batch; the next step begins with rank 0's


@on(2)
def without_sync_across_gpus_each_trains_alone(rank, size):
    trainer, net, opt = setup(AMPConfig(enabled=False, sync_across_gpus=False))
    done = trainer.training_step(net, *share(rank, size, 0), LOSS, opt)
    losses, rows = everywhere(done["loss"]), everywhere(row(net))
    assert losses[0] != losses[1] and not np.array_equal(*rows) and type(net.norm) is nn.BatchNorm1d
    assert trainer.inactive_fields()["sync_batch_norm"] == "sync_across_gpus is off"
    ranks.raised(RuntimeError, "sync_across_gpus is off", trainer.training_step, DDP(net), *share(rank, size, 0), LOSS, opt)


@on(2)
def accumulation_sends_once_a_step(rank, size):
    sent, want_losses = {}, []
    want = one_process(4, want_losses, every=2)
    for field in (True, False):
        trainer, net, opt = setup(AMPConfig(enabled=False, enable_distributed_accumulation=field), gradient_accumulation_steps=2)
        module = trainer._ranks.module_of(net, trainer.amp_config)
        sent[field] = count = []
        leave = module.reducer._leave
        module.reducer._leave = lambda bucket, leave=leave, count=count: (count.append(bucket.index), leave(bucket))
        losses = [trainer.training_step(net, *share(rank, size, step), LOSS, opt)["loss"] for step in range(4)]
        assert np.allclose(losses, want_losses, rtol=1e-4) and np.allclose(row(net), want, rtol=1e-3, atol=1e-4)
        same_everywhere(row(net))
    assert len(sent[False]) == 2 * len(sent[True]) > 0


@on(2)
def a_model_that_is_wrapped_already(rank, size):
    trainer, net, opt = setup()
    again, other, second = setup()
    wrapped = DDP(other)
    for step in range(2):
        trainer.training_step(net, *share(rank, size, step), LOSS, opt)
        again.training_step(wrapped, *share(rank, size, step), LOSS, second)
    assert np.array_equal(row(net), row(other)) and trainer._ranks.module_of(wrapped, PLAIN) is wrapped
    assert isinstance(other.norm, nn.SyncBatchNorm)


# -- decisions -----------------------------------------------------------------------------------------------------------


@on(2, 4)
def where_one_overflows_all_fall_back(rank, size):
    """The step is that of float32 in every rank, dropout and statistics of batch norm and all."""
    rows = []
    for amp in (AMPConfig(), PLAIN):
        trainer, net, opt = setup(amp, dropout=0.5)
        ampc.manual_seed(rank)
        x, y = share(rank, size, 0)
        net.boost = 1e30 if rank == size - 1 and amp.enabled else 1.0
        overflows = everywhere(net.boost)[-1] > 1
        if overflows:
            net.register_forward_pre_hook(lambda m, args: setattr(m, "boost", 1e30 if rank == size - 1 and ampc.is_autocast_enabled("cpu") else 1.0))
            net.register_forward_hook(lambda m, args, out: out * m.boost)
        done = trainer.training_step(net, x, y, LOSS, opt)
        assert (done["fallback"], done["precision"], done["stepped"]) == (overflows, "float32", True), done
        rows.append([*row(net), done["loss"], *ampc.rand(2).tolist()])
        assert trainer.get_amp_stats()["fp32_fallbacks"] == overflows
        same_everywhere(row(net))
    assert np.allclose(*rows, rtol=1e-6), np.abs(np.subtract(*rows)).max()


@on(2)
def an_error_that_speaks_of_overflow_on_one_rank(rank, size):
    trainer, net, opt = setup(AMPConfig())

    def loss(output, y):
        if rank == 1 and output.dtype is ampc.float16:
            raise RuntimeError("overflow in the exponent")
        return LOSS(output, y)

    said = []
    trainer.logger = logging.Logger("ranks")
    trainer.logger.addHandler(type("Keep", (logging.Handler,), {"emit": lambda self, record: said.append(record.getMessage())})())
    done = trainer.training_step(net, *share(rank, size, 0), loss, opt)
    assert done["fallback"] and done["stepped"]
    assert (len(said) == 1 and "an error on another rank" in said[0]) if rank == 0 else not said, said
    same_everywhere(row(net))


@on(2)
def a_loss_that_is_nan_on_one_rank_skips_the_step_of_all(rank, size):
    for amp in (AMPConfig(dtype="bfloat16", enable_fallback_to_fp32=False), AMPConfig(enable_fallback_to_fp32=False), PLAIN):
        trainer, net, opt = setup(amp)
        before = [p.detach().clone() for p in net.parameters()]
        done = trainer.training_step(net, *share(rank, size, 0), lambda out, y: LOSS(out, y) * (float("nan") if rank else 1.0), opt)
        assert done["skipped"] and np.isnan(done["loss"]) and all(ampc.equal(p, q) for p, q in zip(net.parameters(), before))
        assert trainer.get_amp_stats()["skipped_steps"] == 1
        done = trainer.training_step(net, *share(rank, size, 1), LOSS, opt)
        assert done["stepped"] and np.isfinite(done["loss"])
        same_everywhere(row(net))


@on(2)
def shapes_that_differ_between_ranks(rank, size):
    """The last batches of an epoch; the forward pass that is measured is made by all at once."""
    trainer, net, opt = setup(AMPConfig(dtype="bfloat16"))
    for step in range(3):
        x, y = share(rank, size, step)
        n = 8 - 3 * (rank and step)
        trainer.training_step(net, x[:n], y[:n], LOSS, opt)
    same_everywhere(row(net))


@on(2)
def an_epoch_by_a_sampler(rank, size):
    x, y = batch(0, 32)
    trainer, net, opt = setup()
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data)
    served = []
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    trainer.logger = logging.getLogger("ranks")
    found = [trainer.train_epoch(net, ((served.append(a), (a, b))[1] for a, b in loader), LOSS, opt, progress=False)]
    served.clear()
    found += [trainer.train_epoch(net, loader, LOSS, opt, progress=False) for _ in range(2)]
    assert sampler.epoch == 3 and found[0]["steps"] == 2
    sampler.set_epoch(7)
    trainer.train_epoch(net, loader, LOSS, opt)
    assert sampler.epoch == 7
    same_everywhere([f["loss"] for f in found])


# -- checkpoints -----------------------------------------------------------------------------------------------------------


@on(2, 4)
def a_checkpoint_goes_on_bit_for_bit(rank, size):
    path = shared_folder() / "run.safetensors"

    def steps(trainer, net, opt, begin, end):
        return [trainer.training_step(net, *share(rank, size, step), LOSS, opt)["loss"] for step in range(begin, end)]

    for amp in (AMPConfig(), AMPConfig(dtype="bfloat16", sync_batch_norm=False)):
        trainer, net, opt = setup(amp, dropout=0.3)
        ampc.manual_seed(rank)  # each rank drops others
        steps(trainer, net, opt, 0, 3)
        trainer.save_checkpoint(path, net, opt)
        want = steps(trainer, net, opt, 3, 6), row(net)
        trainer, net, opt = setup(amp, dropout=0.3)
        with ampc.no_grad():
            net.first.weight.add_(1)
        trainer.load_checkpoint(path, net, opt)
        got = steps(trainer, net, opt, 3, 6), row(net)
        assert want[0] == got[0] and (np.array_equal(want[1], got[1]) or (not amp.sync_batch_norm and rank)), (want, got)
    assert sorted(p.name for p in path.parent.iterdir()) == ["run.safetensors"]


@on(2)
def one_writes_and_all_wait(rank, size):
    from ampc import serialization

    path, wrote = shared_folder() / "run.safetensors", []
    trainer, net, opt = setup()
    trainer.training_step(net, *share(rank, size, 0), LOSS, opt)
    save = serialization.save
    serialization.save = lambda state, to: (wrote.append(rank), save(state, to))
    try:
        trainer.save_checkpoint(path, net, opt)
    finally:
        serialization.save = save
    assert path.exists() and everywhere(wrote) == [[0], []]
    nowhere = path.parent / "nowhere" / "run.safetensors"
    ranks.raised(FileNotFoundError, "nowhere", trainer.save_checkpoint, nowhere, net, opt)  # on both
    ranks.raised(FileNotFoundError, "nowhere", trainer.load_checkpoint, nowhere, net, opt)
    trainer.amp_stats["total_steps"] += rank
    ranks.raised(RuntimeError, "different numbers of steps: rank 0 1, rank 1 2", trainer.save_checkpoint, path, net, opt)


@on(2)
def one_process_reads_the_checkpoint(rank, size):
    path = shared_folder() / "run.safetensors"
    trainer, net, opt = setup()
    wrapped = DDP(net)
    trainer.training_step(wrapped, *share(rank, size, 0), LOSS, opt)
    trainer.save_checkpoint(path, wrapped, opt)
    alone, other, second = setup(AMPConfig(enabled=False, sync_across_gpus=False))
    alone.load_checkpoint(path, other, second)
    assert np.array_equal(row(other), row(net)) and type(other.norm) is nn.BatchNorm1d


# -- the guard's rules about ranks -------------------------------------------------------------------------------------------


def reported(code, file):
    """(rule, file, line) of what the guard reports on each rank, of code with the names of test_guard's pages."""
    import test_guard

    doctor.reports(clear=True)
    doctor.ignore("autocast-without-effect", "fp16-without-scaler")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(code, file, "exec"), test_guard.surroundings("with autocast" in code))
    dist.barrier()
    return everywhere([(r.rule, r.file, r.line) for r in doctor.reports(clear=True)])


@on(4)
def a_rule_is_printed_by_one_rank(rank, size):
    doctor.reports(clear=True)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for line in (7, 8, 7):
            doctor.guard.say("update-missing", f"found by rank {rank}", "call scaler.update()", "script.py", line)
    dist.barrier()
    assert sorted(line for lines in everywhere([w.lineno for w in found]) for line in lines) == [7, 8]
    assert everywhere([r.line for r in doctor.reports(clear=True)]) == [[7, 8]] * size


@on(2)
def pages_of_rules_are_true(rank, size):
    import test_guard

    os.chdir(shared_folder())
    for page in test_guard.PAGES:
        if page.stem in test_guard.OF_RANKS:
            wrong, right = test_guard.blocks(page)
            line = 1 + next(i for i, text in enumerate(wrong.splitlines()) if text.endswith("# reported"))
            found, want = reported(wrong, "wrong.py"), [(page.stem, "wrong.py", line)]
            assert want in found and all(each in ([], want) for each in found), (page, found)
            assert page.stem == "checkpoint-by-every-rank" or found == [want] * 2  # there the first of them cannot know
            assert reported(right, "right.py") == [[]] * 2, page


LOOP = """
data = torch.utils.data.TensorDataset(torch.randn(16, 8), torch.randint(0, 4, (16,)))
Sampler = torch.utils.data.distributed.DistributedSampler
sampler, other = Sampler(data, shuffle=SHUFFLE), Sampler(data)
loader, valid = (torch.utils.data.DataLoader(data, batch_size=4, sampler=s) for s in (sampler, other))
for epoch in range(3):
    if TOLD:
        sampler.set_epoch(0)  # the same on purpose
    for x, y in loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    for x, y in valid:  # its order is no matter
        model(x)
"""
APART = """
model, other = map(torch.nn.parallel.DistributedDataParallel, (model, other))
for x, y in batches:
    optimizer.zero_grad()
    second.zero_grad()
    with autocast:
        loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    with other.no_sync():
        with autocast:
            loss = criterion(other(x), y)
        scaler.unscale_(optimizer)  # of the other model, whose gradients are averaged
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    with autocast:
        loss = criterion(other(x), y)
    scaler.scale(loss).backward()
    scaler.step(second)
    scaler.update()
"""


@on(2)
def programs_that_are_right_are_left_alone(rank, size):
    folder = shared_folder()
    os.chdir(folder)
    for code in (LOOP.replace("SHUFFLE", "True").replace("TOLD", "True"), LOOP.replace("SHUFFLE", "False").replace("TOLD", "False"), APART,
                 f"for i in range(3):\n    torch.save(model.state_dict(), 'by_rank{rank}.safetensors')\n",
                 "torch.save([1], 'by_turns%d' % torch.distributed.get_rank())\ntorch.distributed.barrier()\ntorch.load('by_turns0')\n"):
        found = reported(code, "right.py")
        assert found == [[]] * 2, (found, code)
    found = reported(LOOP.replace("SHUFFLE", "True").replace("TOLD", "False"), "wrong.py")
    assert found == [[("sampler-without-set-epoch", "wrong.py", 9)]] * 2, found


@on(2)
def stepping_in_no_sync_and_errors(rank, size):
    code = ("model = torch.nn.parallel.DistributedDataParallel(model)\nwith model.no_sync():\n    with autocast:\n        loss = criterion(model(x), y)\n"
            "    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()\n")
    found = reported(code, "wrong.py")
    assert found == [[("unscale-in-no-sync", "wrong.py", 6)]] * 2, found
    with doctor.errors():
        ranks.raised(doctor.MisuseError, "[unscale-in-no-sync]", reported, code, "wrong.py")
    assert reported("x + 1\n", "right.py") == [[]] * 2


if __name__ == "__main__":
    ranks.run(sys.argv[1], PROGRAMS)
