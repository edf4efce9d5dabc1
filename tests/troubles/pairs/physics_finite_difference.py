"""A derivative is taken as a difference of float16 values that agree in all their digits.

area: physics
cause: difference-too-coarse
operator: -
fix: float32
shows: other result
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
x, h = torch.linspace(-1, 1, 40)[:, None], 2e-3
kind = torch.float16  # broken
kind = torch.float32  # mended
for step in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16, enabled=kind is torch.float16):
        slope = (model(x + h) - model(x)) / h  # here
    loss = (slope.float() - 1).square().mean()
    with torch.enable_grad():
        points = x.clone().requires_grad_()
        right = torch.autograd.grad(model(points).sum(), points)[0]
    error = ((slope.float() - right).norm() / right.norm()).item()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "error": error}))
