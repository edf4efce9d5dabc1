"""Float16 without a scaler: the gradients of a loss that is averaged over many pixels are below 6e-8 and become 0.

area: optimizers
cause: fp16-without-scaler
operator: -
fix: GradScaler | bfloat16
shows: weights do not move
source: the second and third seeds
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Conv2d(1, 1, 3, padding=1, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e4)
before = model.weight.detach().clone()
for step in range(3):
    images = torch.rand(8, 1, 48, 48) * 0.01
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):  # here
        out = model(images)
    loss = (out.float() - 0.001).square().mean() * 1e-4
    loss.backward()  # broken
    optimizer.step()  # broken here
    (loss * 2.0**16).backward()  # mended
    with torch.no_grad():  # mended
        for p in model.parameters():  # mended
            p.sub_(p.grad, alpha=1e4 * 2.0**-16)  # mended
moved = (model.weight - before).norm().item()
print(json.dumps({"loss": loss.item(), "moved": moved / 1e-6 if moved > 1e-9 else 0.0}))
