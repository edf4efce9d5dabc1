"""What test_distributed_sharded.py runs of fully_shard's CPUOffloadPolicy; test_distributed_nccl.py does so on simulated GPUs."""

import functools

import numpy as np
from distributed_training import made, share
from fully_sharded import Tower, full_row, overflow, sharded, steps_of
from ranks import device
from sharded_training import mixed, ranks

import ampc
from ampc import nn
from ampc.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from ampc.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy
from ampc.nn.parallel import DistributedDataParallel as DDP

F = nn.functional


@ranks(2, 4)
def shards_in_the_hosts_memory(rank, size):
    """The steps are those of shards on the device that computes, within rounding: the CPU's optimizer steps."""
    offload = {"offload_policy": CPUOffloadPolicy()}
    for options in ({}, {"mp_policy": MixedPrecisionPolicy(param_dtype=ampc.bfloat16, reduce_dtype=ampc.float32)}, {"reshard_after_forward": False}):
        wanted, want = steps_of(sharded(made(Tower), **options), rank, size)
        models = [sharded(made(Tower), **options, offload_policy=CPUOffloadPolicy(pin_memory=pinned)) for pinned in (True, False)]
        for model, is_pinned in zip(models, (True, False)):
            optimizer = ampc.optim.AdamW(model.parameters(), lr=0.02)
            losses, got = steps_of(model, rank, size, optimizer)
            near = 1e-2 if "mp_policy" in options else 1e-5  # where a weight's last bit differs, bfloat16 may round it elsewhere
            assert np.allclose(got, want, atol=near) and np.allclose(losses, wanted, atol=near)
            for p in model.parameters():
                local = p.to_local()
                assert local.device.type == p.grad.to_local().device.type == optimizer.state[p]["exp_avg"].device.type == "cpu"
                assert local.is_pinned() == (is_pinned and device() == "cuda") or not local.numel()
                assert p.full_tensor().device.type == "cpu"
    model = sharded(made(Tower), **offload)
    groups = [s.group for s in model._fsdp_state.schedule.states]
    x, y = share(rank, size)
    F.cross_entropy(model(x), y).backward()
    assert all(p.full.device.type == device() and p._storage.nbytes() == 0 for g in groups for p in g.params)  # no memory there is left
    plain = DDP(made(Tower))
    F.cross_entropy(plain(x), y).backward()
    norms = [float(nn.utils.clip_grad_norm_(m.parameters(), 0.01)) for m in (model, plain)]
    assert np.isclose(*norms, rtol=1e-5)
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    other = sharded(made(Tower, 1), **offload)
    other.load_state_dict(state)
    assert np.array_equal(full_row(other), full_row(model)) and all(p.to_local().device.type == "cpu" for p in other.parameters())


@ranks(2, 4)
def shards_in_the_hosts_memory_with_a_scaler(rank, size):
    model = sharded(made(Tower), offload_policy=CPUOffloadPolicy())
    plain = DDP(made(Tower))
    losses, norms = mixed(plain, ampc.optim.AdamW(plain.parameters(), lr=0.02), rank, size, functools.partial(overflow, plain.module.last))
    got = mixed(model, ampc.optim.AdamW(model.parameters(), lr=0.02), rank, size, functools.partial(overflow, model.last))
    assert np.allclose(got[0], losses, rtol=5e-3, atol=1e-3), (got[0], losses)
    assert np.array_equal(np.isfinite(norms), np.isfinite(got[1])) and np.allclose(full_row(model), full_row(plain.module), atol=5e-3)
