"""accelerate: its Accelerator in three precisions, accumulation, save_state and load_state."""

import tempfile

import numpy as np
import torch
from start import fill, main, pictures, script
from torch import nn


def network():
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 16, 4))


def batches(seed, count, size=8):
    x, y = pictures(np.random.default_rng(seed), count * size, 1, 8, 8)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=size)


def accelerator_of(**settings):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)  # each seed begins anew
    return Accelerator(cpu=True, **settings)


def loop(accelerator, model, optimizer, schedule, data, losses):
    for step, (x, y) in enumerate(data):
        with accelerator.accumulate(model):
            with accelerator.autocast():
                loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss * 2.0**40 if accelerator.scaler is not None and step == 6 else loss)  # once it overflows
            if accelerator.sync_gradients:
                losses.append(float(accelerator.clip_grad_norm_(model.parameters(), 1.0)))
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(loss.item())


def run(seed, accelerator, steps=24):
    model = fill(network(), seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    loop(accelerator, *accelerator.prepare(model, optimizer, schedule, batches(seed, steps)), losses)
    return losses


@script("accelerate", "float32")
def plain(seed):
    return run(seed, accelerator_of())


@script("accelerate", "bf16", rounding="bfloat16")
def bf16(seed):
    return run(seed, accelerator_of(mixed_precision="bf16"))


@script("accelerate", "fp16 with the scaler", rounding="float16")
def fp16(seed):
    accelerator = accelerator_of(mixed_precision="fp16")
    if not torch.cuda.is_available():  # on a CPU accelerate makes no scaler, and takes bfloat16 in autocast: give it what a GPU gets
        accelerator.native_amp, accelerator.scaler = True, torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=4)
    losses = run(seed, accelerator)
    assert not np.isfinite(losses).all()
    return [x for x in losses if np.isfinite(x)] + [accelerator.scaler.get_scale()]


@script("accelerate", "accumulation of four batches")
def accumulation(seed):
    return run(seed, accelerator_of(gradient_accumulation_steps=4))


@script("accelerate", "save_state and load_state")
def resume(seed):
    accelerator, losses = accelerator_of(), []
    model = fill(network(), seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
    parts = accelerator.prepare(model, optimizer, schedule, batches(seed, 12))
    with tempfile.TemporaryDirectory() as folder:
        loop(accelerator, *parts, losses)
        accelerator.save_state(folder)
        loop(accelerator, *parts, losses)
        again = len(losses)
        accelerator.load_state(folder)
        loop(accelerator, *parts, losses)
    assert losses[again:] == losses[again // 2:again], "a loaded state must repeat the run to the bit"
    return losses


if __name__ == "__main__":
    main()
