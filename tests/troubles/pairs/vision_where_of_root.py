"""where() keeps the root of positive values only, but its gradient is taken of all of them, and 0 times infinity is nan.

area: vision
cause: where-gradient
operator: sqrt
fix: where | epsilon
shows: all steps skipped
source: pytorch/pytorch#156212, #36923, #108618, #187297
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Conv2d(3, 1, 3, padding=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
skipped, shape = 0, (torch.rand(1, 1, 8, 8) > 0.3).float()
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        x = model(torch.randn(2, 3, 8, 8)).float().square() * shape
    bright = torch.where(x > 0, torch.sqrt(x), torch.zeros_like(x))  # broken here
    bright = torch.where(x > 0, torch.sqrt(torch.where(x > 0, x, torch.ones_like(x))), torch.zeros_like(x))  # mended
    loss = bright.mean()
    scaler.scale(loss).backward()
    skipped += not model.weight.grad.isfinite().all().item()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "skipped": skipped, "steps": 3}))
