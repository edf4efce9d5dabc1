"""More of what test_distributed.py runs in several processes, see ``ranks``: training."""

import contextlib
import copy
import gc
import io
import math
import warnings

import numpy as np
import ranks

import ampc
import ampc.distributed as dist
from ampc import nn
from ampc.nn.parallel import DistributedDataParallel as DDP

raised = ranks.raised
F = nn.functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 16), nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, x):
        return self.last(F.gelu(self.norm(self.first(x))))


def made(kind=Net, seed=0):
    """A new model on the default device, with the same values on each."""
    ampc.manual_seed(seed)
    with ampc.device("cpu"):
        model = kind()
    return model.to(ranks.device())


def batch(step=0, n=8):
    draw = np.random.default_rng(step)
    return ampc.tensor(draw.normal(size=(n, 6)).astype("f4")), ampc.tensor(draw.integers(0, 3, n))


def share(rank, size, step=0):
    x, y = batch(step)
    return x[rank::size], y[rank::size]


def trained(model, steps=4, rank=0, size=1, optimizer=None, **options):
    """The parameters after some steps, as one row of float64."""
    optimizer = ampc.optim.AdamW(model.parameters(), lr=0.05) if optimizer is None else optimizer
    for step in range(steps):
        x, y = share(rank, size, step)
        optimizer.zero_grad(**options)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return row(model)


def row(model):
    return ampc.cat([p.detach().reshape(-1).double() for p in model.parameters()]).cpu().numpy()


def same_everywhere(values):
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, values)
    assert all(np.array_equal(found[0], each) for each in found)


def no_reports():
    """The guard has found nothing, but that models are small, and that the host waits for the decision of a step on a GPU."""
    found = [str(r) for r in ampc.doctor.reports(clear=True) if r.rule not in ("autocast-without-effect", "step-waits")]
    assert not found, found


@ranks.ranks(2, 4)
def ddp_is_one_process_on_the_joined_batch(rank, size):
    want = trained(made())
    for options in ({}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}, {"static_graph": True},
                    {"bucket_cap_mb": 1e-4}, {"bucket_cap_mb": 1e-4, "gradient_as_bucket_view": True}):
        for zero in ({}, {"set_to_none": False}):
            got = trained(DDP(made(), **options), 4, rank, size, **zero)
            assert np.allclose(got, want, rtol=1e-4, atol=1e-5), (options, np.abs(got - want).max())
            same_everywhere(got)
    again = [trained(DDP(made(), bucket_cap_mb=1e-4), 4, rank, size) for _ in range(2)]
    assert np.array_equal(*again)  # bit for bit


@ranks.ranks(2)
def gradients_are_the_mean(rank, size):
    model, one = DDP(made(), bucket_cap_mb=1e-4), made()
    x, y = share(rank, size)
    F.cross_entropy(model(x), y).backward()
    F.cross_entropy(one(batch()[0]), batch()[1]).backward()
    for p, q in zip(model.parameters(), one.parameters()):
        assert ampc.allclose(p.grad, q.grad, rtol=1e-5, atol=1e-6)
    assert [name for name, _ in model.named_parameters()][0] == "module.first.weight"


@ranks.ranks(2, 4)
def gradients_of_one_host_are_averaged_where_they_lie(rank, size):
    plain, viewed = (DDP(made(), bucket_cap_mb=1e-4, gradient_as_bucket_view=view) for view in (False, True))
    x, y = share(rank, size)
    last, before = list(plain.parameters())[-1], []
    for p in plain.parameters():  # the first and third as columns of a matrix, the others in a row; no_sync adds to what is there
        p.grad = ampc.zeros(p.numel(), 2)[:, 0].view_as(p) if p.dim() == 1 else ampc.zeros_like(p)
    where = [p.grad.data_ptr() for p in plain.parameters()]
    last.register_post_accumulate_grad_hook(lambda p: before.append(p.grad.clone()))
    for model in (plain, viewed):
        F.cross_entropy(model(x), y).backward()
    grads = [[p.grad.cpu().numpy().copy() for p in model.parameters()] for model in (plain, viewed)]
    assert all(np.array_equal(a, b) for a, b in zip(*grads))  # the same bits as by way of a row
    same_everywhere(np.concatenate([g.ravel() for g in grads[0]]))
    if ranks.device() == "cpu":
        assert [p.grad.data_ptr() for p in plain.parameters()] == where
        assert not any("row" in vars(bucket) for bucket in plain.reducer._buckets)  # there is no second memory for gradients
    one = made()
    F.cross_entropy(one(x), y).backward()  # a hook of the script sees this rank's own
    assert ampc.allclose(before[0], list(one.parameters())[-1].grad, rtol=1e-5, atol=1e-6)
    assert not np.allclose(before[0].cpu().numpy(), grads[0][-1])


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Parameter(ampc.ones(3)) for _ in range(2))

    def forward(self, x):
        return (self.a + self.b) * x


@ranks.ranks(2)
def gradients_that_share_memory_are_averaged_once(rank, size):
    for shared in (lambda t: (t[:3], t[:3]), lambda t: (t[:3], t[1:]), lambda t: (t, t) if t.numel() == 3 else (t[1:], t[:3])):
        found = []
        for in_a_row in (False, True):
            model, memory = DDP(Two()), ampc.zeros(4)
            if in_a_row:
                model.register_comm_hook(None, lambda state, bucket: dist.all_reduce(bucket.buffer().div_(size), async_op=True).get_future())
            model.module.a.grad, model.module.b.grad = shared(memory)
            model(ampc.full((3,), rank + 1.0)).sum().backward()
            found.append(memory.tolist())
        assert found[0] == found[1] and max(found[0]) in (1.5, 3.0), found
        same_everywhere(np.array(found[0]))


@ranks.ranks(2)
def only_passes_of_its_own_are_averaged(rank, size):
    module, x = Two(), ampc.full((3,), rank + 1.0)
    model, mean, own = DDP(module), [1.5] * 3, [rank + 1.0] * 3
    model(x).sum().backward()
    assert module.a.grad.tolist() == mean
    model.zero_grad()
    module(x).sum().backward()  # without its forward pass, on one rank or all
    assert module.a.grad.tolist() == own
    model.zero_grad()
    loss = model(x).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert module.a.grad.tolist() == [m + o for m, o in zip(mean, own)]  # as in torch
    model.zero_grad()
    losses = [model(x).sum() for _ in range(2)]
    for loss in losses:
        loss.backward()
    assert module.a.grad.tolist() == [2 * m for m in mean]
    del model, loss, losses
    gc.collect()
    module.zero_grad()
    if rank == 0:
        module(x).sum().backward()
        assert module.a.grad.tolist() == own


@ranks.ranks(2)
def buckets_follow_the_order_of_use(rank, size):
    model = DDP(made(), bucket_cap_mb=1e-4)
    before = [b.numbers for b in model.reducer._buckets]
    assert before[0] == [5] or before[0] == [5, 4]  # the last parameters first
    trained(model, 2, rank, size)
    after = [i for b in model.reducer._buckets for i in b.numbers]
    assert sorted(after) == list(range(6)) and set(after[:2]) == {4, 5} and set(after[-2:]) == {0, 1}


@ranks.ranks(2)
def no_sync_adds_up(rank, size):
    for view in (False, True):
        model, one = DDP(made(), gradient_as_bucket_view=view), made()
        for _ in range(2):  # the second time with buckets made anew
            for p in (*model.parameters(), *one.parameters()):
                p.grad = None
            for step in range(3):
                x, y = share(rank, size, step)
                if step < 2:
                    with model.no_sync():
                        F.cross_entropy(model(x), y).backward()
                else:
                    F.cross_entropy(model(x), y).backward()
                F.cross_entropy(one(batch(step)[0]), batch(step)[1]).backward()
            for p, q in zip(model.parameters(), one.parameters()):
                assert ampc.allclose(p.grad, q.grad, rtol=1e-4, atol=1e-5)
    same_everywhere([p.grad.cpu().numpy() for p in model.parameters()][0])


def a_backward_pass_is_made_to_average(rank, size):
    """As Accelerate does it: all forward passes within no_sync, and the last backward pass averages their sum."""
    model, one = DDP(made()), made()
    with model.no_sync():
        losses = [F.cross_entropy(model(x), y) for x, y in (share(rank, size, step) for step in range(3))]
    for step, loss in enumerate(losses):
        if step == 2:
            model.require_backward_grad_sync = model.require_forward_param_sync = True
            model.reducer.prepare_for_backward([])
        loss.backward()
        F.cross_entropy(one(batch(step)[0]), batch(step)[1]).backward()
    for p, q in zip(model.parameters(), one.parameters()):
        assert ampc.allclose(p.grad, q.grad, rtol=1e-4, atol=1e-5)
    same_everywhere([p.grad.cpu().numpy() for p in model.parameters()][0])


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.never = nn.Linear(6, 3), nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x, which):
        return (self.a, self.b)[which](x)


@ranks.ranks(2)
def unused_parameters(rank, size):
    model = DDP(made(Branches), find_unused_parameters=True)
    for step in range(3):
        x, y = share(rank, size, step)
        for p in model.parameters():
            p.grad = None
        F.cross_entropy(model(x, rank), y).backward()  # each rank another branch
        parts = [made(Branches) for _ in range(2)]
        for r, part in enumerate(parts):
            xr, yr = share(r, size, step)
            (F.cross_entropy(part(xr, r), yr) / 2).backward()
        assert ampc.allclose(model.module.a.weight.grad, parts[0].a.weight.grad) and ampc.allclose(model.module.b.weight.grad, parts[1].b.weight.grad)
        assert model.module.never.weight.grad is None
    plain = DDP(made(Branches))
    x, y = share(rank, size)
    F.cross_entropy(plain(x, 0), y).backward()
    raised(RuntimeError, "gave no gradient to b.weight, b.bias, never.weight, never.bias", plain, x, 0)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.heads = nn.Linear(6, 4), nn.ModuleList([nn.Linear(4, 3) for _ in range(2)])

    def forward(self, x):
        return {"heads": [head(self.body(x)) for head in self.heads]}


@ranks.ranks(2)
def outputs_beside_the_loss(rank, size):
    for options in ({"find_unused_parameters": True}, {"find_unused_parameters": True, "gradient_as_bucket_view": True, "bucket_cap_mb": 1e-5}):
        model, one = DDP(made(Heads), **options), made(Heads)
        for step in range(4):
            used = [(step % 2,), (rank,), (0, 1)][min(step, 2)]  # by this rank's loss
            model.zero_grad()
            one.zero_grad()
            x, y = share(rank, size, step)
            outputs = model(x)["heads"]
            sum(F.cross_entropy(outputs[i], y) for i in used).backward()
            for r in range(size):
                x, y = share(r, size, step)
                outputs = one(x)["heads"]
                (sum(F.cross_entropy(outputs[i], y) for i in (used if step != 1 else (r,))) / size).backward()
            for (name, p), q in zip(model.module.named_parameters(), one.parameters()):
                assert (p.grad is None) == (q.grad is None), (step, name)
                assert q.grad is None or ampc.allclose(p.grad, q.grad, atol=1e-6), (step, name)


@ranks.ranks(2)
def two_passes_where_one_is_meant(rank, size):
    """The second head's gradients end the pass, whose average has the first head's part of the body alone."""
    model = DDP(made(Heads))
    x, y = share(rank, size)
    first, second = model(x)["heads"]
    F.cross_entropy(first, y).backward(retain_graph=True)
    raised(RuntimeError, "has got a second gradient after all gradients were averaged", F.cross_entropy(second, y).backward)
    model = DDP(made(Heads))
    both = [sum(F.cross_entropy(o, y) for o in model(x)["heads"]) for _ in range(2)]
    for loss in both:  # each of which reaches all
        loss.backward()


@ranks.ranks(2)
def modules_that_differ(rank, size):
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2 + rank))
    raised(RuntimeError, "1.weight of rank 0 is float32 [2, 3] trained, and 1.weight of rank 1 is float32 [3, 3] trained", DDP, model)
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(2 + rank)])
    raised(RuntimeError, "nothing more of rank 0 is nothing, and 2.weight of rank 1", DDP, model)
    model = made()
    with ampc.no_grad():
        model.last.bias.add_(rank)
    raised(RuntimeError, "last.bias of rank 0 has the checksum", DDP, model, init_sync=False)
    DDP(model)
    same_everywhere(row(model))
    raised(RuntimeError, "no parameter of the module requires gradients", DDP, nn.ReLU())
    raised(ValueError, "a process trains on one device", DDP, model, device_ids=[0, 1])
    for options in ({"device_ids": [0]}, {"output_device": 1}):
        raised(ValueError, "`device_ids` and `output_device` are for modules on a GPU", DDP, ampc.nn.Linear(2, 2, device="cpu"), **options)
    assert DDP(model).device == model.last.weight.device


@ranks.ranks(2)
def buffers_are_rank_0s(rank, size):
    model = DDP(nn.BatchNorm1d(6))
    with ampc.no_grad():
        model.module.running_mean.fill_(float(rank))
    model(share(rank, size)[0]).sum().backward()
    want = 0.9 * 0 + 0.1 * share(rank, size)[0].mean(0)  # rank 0's mean, then this rank's batch
    assert ampc.allclose(model.module.running_mean, want, atol=1e-6)


@ranks.ranks(2)
def buffers_may_be_each_ranks_own(rank, size):
    def first_and_later(**options):
        net = nn.BatchNorm1d(6)
        with ampc.no_grad():
            net.running_mean.fill_(float(rank + 1))
        model = DDP(net, **options)
        found = [net.running_mean[0].item()]
        with ampc.no_grad():
            net.running_mean.fill_(float(rank + 5))
        model(ampc.zeros(4, 6)).sum().backward()
        return [*found, round(net.running_mean[0].item() / 0.9)], model.broadcast_buffers

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert first_and_later(broadcast_buffers=False) == ([rank + 1, rank + 5], False)
        assert first_and_later(forward_sync_buffers=False) == ([1, rank + 5], False)
        assert first_and_later(forward_sync_buffers=True) == first_and_later() == ([1, 5], True)
        assert first_and_later(broadcast_buffers=False, forward_sync_buffers=True) == ([1, 5], True)
    said = [w for w in said if "`broadcast_buffers` is deprecated" in str(w.message)]
    assert [w.category for w in said] == [FutureWarning] * 2 and "counts where both are given" in str(said[1].message)
    net = nn.BatchNorm1d(6)
    net.register_buffer("mine", ampc.zeros(rank + 1))  # of any shape
    DDP(net, broadcast_buffers=False)
    ranks.raised(RuntimeError, "the ranks' modules differ: mine", DDP, net, forward_sync_buffers=False)


@ranks.ranks(2)
def other_arguments_of_torch(rank, size):
    plain = trained(DDP(made()), 2, rank, size)
    listed = DDP(made(), bucket_cap_mb_list=[1e-4, 1.0])
    assert [len(b.numbers) for b in listed.reducer._buckets] == [1, 5]
    assert np.array_equal(trained(listed, 2, rank, size), plain)
    assert [len(b.numbers) for b in DDP(made(), bucket_cap_mb=1.0).reducer._buckets] == [6]
    net = made()
    late = DDP(net, delay_all_reduce_named_params=[("first.weight", net.first.weight)], param_to_hook_all_reduce=net.first.bias,
               skip_all_reduce_unused_params=True, batched_grad_copy=True)
    assert np.array_equal(trained(late, 2, rank, size), plain)
    ranks.raised(ValueError, "must be given both or neither", DDP, made(), param_to_hook_all_reduce=net.first.bias)
    ranks.raised(ValueError, "`bucket_cap_mb_list` must be positive, got [1, 0]", DDP, made(), bucket_cap_mb_list=[1, 0])
    ranks.raised(NotImplementedError, "write the forward pass within torch.autocast", DDP, made(), mixed_precision=object())


@ranks.ranks(2)
def a_wrapped_module_is_copied_and_saved_whole(rank, size):
    model = DDP(made(), find_unused_parameters=True, bucket_cap_mb=1e-4)
    trained(model.eval(), 2, rank, size)
    file = io.BytesIO()
    ampc.save(model, file)
    file.seek(0)
    copies = copy.deepcopy(model), ampc.load(file, weights_only=False)
    want = trained(model, 4, rank, size)
    for again in copies:
        assert not again.training and again.find_unused_parameters and again.module is not model.module
        assert np.array_equal(trained(again, 4, rank, size), want)


@ranks.ranks(2)
def a_copy_of_a_wrapped_module_keeps_what_it_was_given(rank, size):
    net, Named = nn.BatchNorm1d(6), type("Named", (DDP,), {})
    net.register_buffer("mine", ampc.full((rank + 1,), float(rank)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # broadcast_buffers is deprecated
        model = Named(net, broadcast_buffers=False)
    model.register_forward_hook(lambda *call: None)
    model.note = "a note"
    net.running_mean.fill_(rank)
    again = copy.deepcopy(model)
    assert type(again) is Named and again.note == "a note" and len(again._forward_hooks) == 1 and not again.forward_sync_buffers
    assert again.module.mine.shape == (rank + 1,) and again.module.running_mean.tolist() == [rank] * 6
    late = copy.deepcopy(DDP(made()))
    with late.join():  # it connects, though one rank has no batches
        for step in range(rank):
            late(batch(step)[0]).sum().backward()
    if rank == 0:  # in one process alone, where nothing is trained
        with ampc.no_grad():
            assert copy.deepcopy(model).eval()(ampc.ones(2, 6)).shape == (2, 6)
    alone = [dist.new_group([each]) for each in range(size)][rank]
    ranks.raised(RuntimeError, "copy or save model.module", copy.deepcopy, DDP(made(), process_group=alone))


@ranks.ranks(2)
def a_graph_is_said_to_be_static_before_the_first_pass(rank, size):
    model, given = DDP(made()), DDP(made(), static_graph=True)
    model._set_static_graph()
    assert model.static_graph and np.array_equal(*(trained(each, 4, rank, size) for each in (model, given)))
    ranks.raised(RuntimeError, "a forward pass has been made already", model._set_static_graph)


@ranks.ranks(2)
def hooks_send_gradients(rank, size):
    def half(state, bucket: ampc.nn.parallel.distributed.GradBucket) -> ampc.futures.Future[ampc.Tensor]:
        state.append((bucket.index(), bucket.is_last(), len(bucket.gradients()), len(bucket.parameters())))
        small = bucket.buffer().to(ampc.bfloat16) / size
        return dist.all_reduce(small, async_op=True).get_future().then(lambda f: f.value()[0].float())

    seen, model, plain = [], DDP(made(), bucket_cap_mb=1e-4), DDP(made())
    model.register_comm_hook(seen, half)
    raised(RuntimeError, "there is a hook already", model.register_comm_hook, None, half)
    x, y = share(rank, size)
    for m in (model, plain):
        F.cross_entropy(m(x), y).backward()
    for p, q in zip(model.parameters(), plain.parameters()):
        assert ampc.allclose(p.grad, q.grad, rtol=2e-2, atol=2e-3) and not ampc.equal(p.grad, q.grad)
    assert [s[1] for s in seen] == [False] * (len(seen) - 1) + [True] and sum(s[2] for s in seen) == 6
    same_everywhere(model.module.last.bias.grad.cpu().numpy())


@ranks.ranks(2)
def hooks_of_the_library(rank, size):
    from ampc.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks

    plain = DDP(made())
    x, y = share(rank, size)
    F.cross_entropy(plain(x), y).backward()
    for hook, digits in ((hooks.allreduce_hook, 0), (hooks.fp16_compress_hook, 10), (hooks.bf16_compress_hook, 7),
                         (hooks.bf16_compress_wrapper(hooks.allreduce_hook), 7), (hooks.fp16_compress_wrapper(hooks.allreduce_hook), 10)):
        model = DDP(made(), bucket_cap_mb=1e-4)
        model.register_comm_hook(None, hook)
        F.cross_entropy(model(x), y).backward()
        for p, q in zip(model.parameters(), plain.parameters()):
            assert ampc.allclose(p.grad, q.grad, rtol=2.0**-digits, atol=1e-3) if digits else ampc.equal(p.grad, q.grad)


# -- mixed precision -----------------------------------------------------------------------------------------------------


@ranks.ranks(2)
def an_overflow_on_one_rank_skips_everywhere(rank, size):
    for view in (False, True):
        model = DDP(made(), gradient_as_bucket_view=view)
        optimizer, scaler = ampc.optim.SGD(model.parameters(), lr=0.1), ampc.amp.GradScaler(ranks.device(), init_scale=2.0**10)
        skipped, before = [], row(model)
        for step in range(4):
            x, y = share(rank, size, step)
            optimizer.zero_grad()
            with ampc.autocast(ranks.device(), dtype=ampc.float16):
                loss = F.cross_entropy(model(x), y)
            if step == 1 and rank == 1:  # its gradients overflow, its loss does not
                loss = loss + _overflows(model.module.last.weight)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            skipped.append(scaler.last_step.skipped)
            same_everywhere(np.array([float(norm) if math.isfinite(float(norm)) else -1.0, scaler.get_scale(), *row(model)]))
        assert skipped == [False, True, False, False] and scaler.get_scale() == 2.0**9 and not np.array_equal(before, row(model)), (skipped, scaler.get_scale())


class _Overflow(ampc.autograd.Function):
    @staticmethod
    def forward(ctx, w):
        return w.sum() * 0

    @staticmethod
    def backward(ctx, g):
        return ampc.full((3, 16), math.inf)


def _overflows(w):
    return _Overflow.apply(w)


@ranks.ranks(2)
def the_guard_finds_nothing(rank, size):
    """Gradients that travel are not taken for edited ones, accumulated, scaled and clipped."""
    for view in (False, True):
        model = DDP(made(), gradient_as_bucket_view=view)
        optimizer, scaler = ampc.optim.AdamW(model.parameters(), lr=0.01), ampc.amp.GradScaler(ranks.device(), init_scale=2.0**10)
        ampc.doctor.reports(clear=True)
        for step in range(6):
            x, y = share(rank, size, step)
            with model.no_sync() if step % 2 == 0 else contextlib.nullcontext(), ampc.autocast(ranks.device(), dtype=ampc.float16):
                loss = F.cross_entropy(model(x), y)
                scaled = scaler.scale(loss / 2)
            with model.no_sync() if step % 2 == 0 else contextlib.nullcontext():
                scaled.backward()
            if step % 2:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=step == 3)
        no_reports()
        same_everywhere(row(model))


@ranks.ranks(2)
def a_bad_loss_on_one_rank_keeps_every_scale(rank, size):
    model = DDP(made())
    optimizer, scaler = ampc.optim.SGD(model.parameters(), lr=0.1), ampc.amp.GradScaler(ranks.device(), init_scale=2.0**10)
    x, y = share(rank, size)
    if rank == 1:
        x = x * math.inf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.last_step.skipped and scaler.get_scale() == 2.0**10


@ranks.ranks(2)
def scales_that_differ(rank, size):
    model = DDP(made())
    scaler = ampc.amp.GradScaler(ranks.device(), init_scale=2.0**(10 + rank))
    x, y = share(rank, size)
    raised(RuntimeError, "the ranks' scales differ, they are from 1024 to 2048", scaler.scale(F.cross_entropy(model(x), y)).backward)


@ranks.ranks(2)
def parameters_of_sixteen_bits(rank, size):
    for dtype in (ampc.bfloat16, ampc.float16):
        model = DDP(made().to(dtype))
        x, y = share(rank, size)
        F.cross_entropy(model(x.to(dtype)).float(), y).backward()
        assert all(p.grad.dtype == dtype for p in model.parameters())
        same_everywhere(model.module.last.bias.grad.float().cpu().numpy())


# -- batch norm ----------------------------------------------------------------------------------------------------------


@ranks.ranks(2)
def batch_norm_over_all_ranks(rank, size):
    for shape, kind in (((10, 4), nn.BatchNorm1d), ((6, 4, 3, 3), nn.BatchNorm2d)):
        draw = np.random.default_rng(5)
        data, weights = (ampc.tensor(draw.normal(3, 2, shape).astype("f4")) for _ in range(2))
        cut = 2  # ranks with batches of other sizes
        mine = slice(0, cut) if rank == 0 else slice(cut, None)
        whole, part = kind(4), nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(kind(4)))
        assert type(part[0]) is nn.SyncBatchNorm and list(part.state_dict())[0] == "0.weight"
        x, y = data.clone().requires_grad_(), data[mine].clone().requires_grad_()
        want, got = whole(x), part(y)
        (want * weights).sum().backward()
        (got * weights[mine]).sum().backward()
        assert ampc.allclose(got, want[mine], atol=1e-5) and ampc.allclose(y.grad, x.grad[mine], atol=1e-5)
        grad = part[0].weight.grad.clone()
        dist.all_reduce(grad)
        assert ampc.allclose(grad, whole.weight.grad, atol=1e-4)
        assert ampc.allclose(part[0].running_mean, whole.running_mean) and ampc.allclose(part[0].running_var, whole.running_var)
        assert ampc.allclose(part.eval()(y), whole.eval()(x)[mine], atol=1e-5)
    model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))))
    same_everywhere(trained(model, 3, rank, size))


# -- data ----------------------------------------------------------------------------------------------------------------


@ranks.ranks(2)
def samplers_know_the_group(rank, size):
    sampler = ampc.utils.data.distributed.DistributedSampler(list(range(9)), shuffle=False)
    assert (sampler.rank, sampler.num_replicas) == (rank, size) and list(sampler) == [0, 2, 4, 6, 8] if rank == 0 else [1, 3, 5, 7, 0]
    shuffled = ampc.utils.data.distributed.DistributedSampler(list(range(10)), seed=3)
    shuffled.set_epoch(2)
    found = [None] * size
    dist.all_gather_object(found, list(shuffled))
    assert sorted(found[0] + found[1]) == list(range(10))


class Squares(ampc.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        return ampc.tensor([float(i)] * 6)


@ranks.ranks(2)
def loaders_with_workers(rank, size):
    data = Squares()
    sampler = ampc.utils.data.distributed.DistributedSampler(data, shuffle=False)
    total = sum(float(b.sum()) for b in ampc.utils.data.DataLoader(data, batch_size=4, sampler=sampler, num_workers=2))
    t = ampc.tensor(total)
    dist.all_reduce(t)
    assert t.item() == 6 * sum(range(16))
