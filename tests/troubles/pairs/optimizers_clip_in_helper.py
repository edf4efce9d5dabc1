"""A helper clips and steps; it was written for float32, and is now called with scaled gradients.

area: optimizers
cause: clip-scaled-gradients
also: step-on-scaled-gradients
operator: -
fix: unscale_
shows: weights do not move
source: Lightning-AI/pytorch-lightning#9599; milesial/Pytorch-UNet PR#470
"""
import json

import torch
from torch import nn


def finish(parameters, limit):
    return nn.utils.clip_grad_norm_(parameters, limit)  # here


torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=8192.0)
before = model.weight.detach().clone()
for step in range(4):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)  # mended
    norm = finish(model.parameters(), 0.05)
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "moved": (model.weight.detach() - before).norm().item() / 0.02}))
