"""A clipping of one's own: the norm of every gradient is read and the gradient multiplied, while they are scaled.

area: optimizers
cause: clip-scaled-gradients
also: edit-scaled-gradients
operator: -
fix: unscale_
shows: weights do not move
source: Lightning-AI/pytorch-lightning#9330
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
before = [p.detach().clone() for p in model.parameters()]
for step in range(4):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)  # mended
    for p in model.parameters():
        norm = p.grad.norm()  # here
        limit = 0.05 * max(p.detach().norm().item(), 1e-3)
        if norm > limit:
            p.grad.mul_(limit / norm)
    scaler.step(optimizer)
    scaler.update()
moved = sum((p.detach() - b).norm().item() for p, b in zip(model.parameters(), before))
print(json.dumps({"loss": loss.item(), "moved": moved / 0.01}))
