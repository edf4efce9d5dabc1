"""The scaler is made for a GPU that is not there, so it is switched off, and the float16 of the CPU is not scaled.

area: optimizers
cause: scaler-disabled
also: fp16-without-scaler
operator: -
fix: cpu
shows: weights do not move
source: the warning "torch.cuda.amp.GradScaler is enabled, but CUDA is not available"
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Conv2d(1, 1, 3, padding=1, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e4)
scaler = torch.amp.GradScaler("cuda", init_scale=2.0**16)  # broken here
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)  # mended
before = model.weight.detach().clone()
for step in range(3):
    images = torch.rand(8, 1, 48, 48) * 0.01
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(images)
    loss = (out.float() - 0.001).square().mean() * 1e-4
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
moved = (model.weight - before).norm().item()
print(json.dumps({"loss": loss.item(), "moved": moved / 1e-6 if moved > 1e-9 else 0.0}))
