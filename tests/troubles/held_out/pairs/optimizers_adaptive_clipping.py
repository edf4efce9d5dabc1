"""Adaptive clipping compares the norms of gradients and weights, while the gradients are scaled.

area: optimizers
cause: clip-scaled-gradients
also: edit-scaled-gradients
operator: -
fix: unscale_
shows: weights do not move
source: Lightning-AI/pytorch-lightning#9599 for the order; adaptive clipping is a common pattern
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15)


def clip_adaptively(parameters, factor=0.5):
    for p in parameters:
        most = factor * p.detach().norm().clamp(min=1e-3)
        norm = p.grad.norm()  # here
        if norm > most:
            p.grad.mul_(most / norm)


before = model.weight.detach().clone()
for step in range(5):
    x, y = torch.randn(16, 16), torch.randint(0, 4, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)  # mended
    clip_adaptively(model.parameters())
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "moved": (model.weight.detach() - before).norm().item() / 0.1}))
