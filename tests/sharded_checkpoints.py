"""What test_distributed_sharded.py runs of state dicts of optimizers, and of checkpoints that several processes write, beside fully_sharded.py."""

import os

import numpy as np
from distributed_training import made, trained
from fully_sharded import Tower, full_row, sharded, steps_of
from ranks import device, raised, shared_folder
from sharded_training import close, ranks

import ampc
import ampc.distributed as dist
from ampc.distributed import checkpoint
from ampc.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from ampc.distributed.device_mesh import init_device_mesh
from ampc.distributed.tensor import DTensor


@ranks(2)
def state_dicts_of_optimizers(rank, size):
    for make in (lambda params: ampc.optim.AdamW(params, lr=0.02), lambda params: ampc.optim.SGD(params, lr=0.02, momentum=0.9)):
        model, plain = sharded(made(Tower)), made(Tower)
        optimizer, other = make(model.parameters()), make(plain.parameters())
        fresh = get_optimizer_state_dict(model, optimizer)
        assert not optimizer.state and all(float(t.full_tensor().abs().max()) == 0 for v in fresh["state"].values() for t in v.values() if isinstance(t, DTensor))
        want = trained(plain, 3, optimizer=other)
        steps_of(model, rank, size, optimizer, 3)
        shards, full = get_optimizer_state_dict(model, optimizer), get_optimizer_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True))
        alone = get_optimizer_state_dict(plain, other)
        assert set(shards["state"]) == set(full["state"]) == set(alone["state"]) == {name for name, _ in model.named_parameters()}
        assert {k: type(v) for k, v in fresh["state"]["last.weight"].items()} == {k: type(v) for k, v in shards["state"]["last.weight"].items()}
        for name, values in alone["state"].items():
            for key, value in values.items():
                if isinstance(value, ampc.Tensor) and value.ndim:
                    assert isinstance(shards["state"][name][key], DTensor) and full["state"][name][key].shape == value.shape
                    close(full["state"][name][key].cpu().numpy(), value.cpu().numpy())
        assert [g["params"] for g in full["param_groups"]] == [[name for name, _ in model.named_parameters()]]
        on_zero = get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        assert [bool(each) for each in on_zero] == [rank == 0] * 2
        ends = []
        for dicts, options in ((get_state_dict(model, optimizer), None), (on_zero, StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))):
            again = sharded(made(Tower, seed=5))
            later = make(again.parameters())
            later.param_groups[0]["lr"] = 0.5
            set_state_dict(again, later, model_state_dict=dicts[0], optim_state_dict=dicts[1], options=options)
            ends.append(steps_of(again, rank, size, later, 2))
        on_one = made(Tower, seed=5)  # from whole tensors into one process' model
        set_optimizer_state_dict(on_one, make(on_one.parameters()), full)
        last = steps_of(model, rank, size, optimizer, 2)
        assert all(end[0] == last[0] and np.array_equal(end[1], last[1]) for end in ends) and len(want)
        raised(RuntimeError, "that the model does not have", get_optimizer_state_dict, model, make(plain.parameters()))
        del full["param_groups"][0]["params"][0]
        raised(RuntimeError, "the state dict lacks", set_optimizer_state_dict, model, optimizer, full)


def stepped(model, rank, size):
    """An optimizer of the model after two steps."""
    optimizer = ampc.optim.AdamW(model.parameters(), lr=0.02)
    steps_of(model, rank, size, optimizer, 2)
    return optimizer


def restored(folder, model):
    """The model and an optimizer of it, with what the checkpoint has."""
    optimizer = ampc.optim.AdamW(model.parameters(), lr=0.5)
    parts = get_state_dict(model, optimizer)
    found = {"model": parts[0], "optimizer": parts[1], "epoch": 0, "betas": (0, 0)}
    checkpoint.load(found, checkpoint_id=folder)
    assert (found["epoch"], found["betas"]) == (3, (0.5, 2))
    set_state_dict(model, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
    return optimizer


@ranks(2, 4)
def checkpoints_of_several_processes(rank, size):
    """Saved by some, loaded by as many, by fewer with replicas, and by each alone."""
    folder = shared_folder()
    model = sharded(made(Tower))
    optimizer = stepped(model, rank, size)
    parts = get_state_dict(model, optimizer)
    for _ in range(2):  # the second replaces the first
        checkpoint.save({"model": parts[0], "optimizer": parts[1], "epoch": 3, "betas": (0.5, 2)}, checkpoint_id=folder)
        assert len(os.listdir(folder)) == size + 1
    makers = [lambda: sharded(made(Tower, seed=5)), lambda: made(Tower, seed=5)]
    if size == 4:
        mesh = init_device_mesh(device(), (2, 2))
        makers.append(lambda: sharded(made(Tower, seed=5), mesh=mesh))
    want = full_row(model)
    moments = get_optimizer_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True))["state"]
    for make in makers:
        again = make()
        later = restored(folder, again)
        assert np.array_equal(full_row(again), want)
        got = get_optimizer_state_dict(again, later, options=StateDictOptions(full_state_dict=True))["state"]
        assert all(ampc.equal(got[name]["exp_avg"], values["exp_avg"]) for name, values in moments.items())
    if size == 4:  # from replicas, of which one writes
        parts = get_state_dict(again, later)
        checkpoint.save({"model": parts[0], "optimizer": parts[1], "epoch": 3, "betas": (0.5, 2)}, storage_writer=checkpoint.FileSystemWriter(folder))
        last = makers[0]()
        restored(folder, last)
        assert np.array_equal(full_row(last), want)


@ranks(2)
def what_a_checkpoint_refuses(rank, size):
    folder = shared_folder()
    model = sharded(made(Tower))
    parts = get_model_state_dict(model)
    raised(FileNotFoundError, "has no checkpoint", checkpoint.load, {}, checkpoint_id=folder)
    raised(ValueError, "`checkpoint_id` says which folder", checkpoint.save, {})
    checkpoint.save({"model": model, "note": "first"}, checkpoint_id=folder)  # what has a state dict is asked for it
    files = sorted(os.listdir(folder))
    raised(RuntimeError, "rank 1: TypeError: save: note is object", checkpoint.save, {"model": parts, "note": object() if rank else "x"},
           checkpoint_id=folder)
    raised(RuntimeError, "the keys of a checkpoint are text", checkpoint.save, {"model": {(1, 2): 3}}, checkpoint_id=folder)
    other = sharded(made(Tower, seed=5))
    found = {"model": other, "note": ""}
    checkpoint.load(found, storage_reader=checkpoint.FileSystemReader(folder))
    assert found["note"] == "first" and np.array_equal(full_row(other), full_row(model))
    raised(RuntimeError, "has no tensor model.other", checkpoint.load, {"model": {"other": ampc.ones(2)}}, checkpoint_id=folder)
    raised(RuntimeError, "has no value model.last.bias", checkpoint.load, {"model": {"last.bias": 1}}, checkpoint_id=folder)
    raised(RuntimeError, "has the shape [2], and [3] in the checkpoint", checkpoint.load, {"model": {"last.bias": ampc.ones(2)}}, checkpoint_id=folder)
    dist.barrier()
    if rank == 0:
        kept = [name for name in files if name != "index.json"]
        os.truncate(os.path.join(folder, kept[0]), 40)
        raised(RuntimeError, "is damaged", checkpoint.load, {"model": {"last.bias": ampc.ones(3)}}, checkpoint_id=folder)
        with open(os.path.join(folder, "index.json"), "w") as f:
            f.write('{"format":"ampc.distributed.checkpoint","version":1,"entries":[{"path":["x"],"dtype":"float32","shape":[1],'
                    '"parts":[{"file":"../x","name":"0","begin":0,"end":1}]}]}')
        raised(RuntimeError, "is damaged: ValueError: an entry has the part", checkpoint.load, {"x": ampc.ones(1)}, checkpoint_id=folder)
    dist.barrier()
