"""The radius of collocation points is a root of squares, and one point is the origin.

area: physics
cause: norm-by-hand
also: division-by-zero
operator: sqrt
fix: epsilon | vector_norm
shows: nan loss
source: pytorch/pytorch#2421; physics-informed networks in polar coordinates
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    points = torch.rand(20, 2) * 2 - 1
    points[0] = 0.0
    points.requires_grad_()
    radius = torch.sqrt((points**2).sum(1, keepdim=True))  # broken here
    radius = torch.sqrt((points**2).sum(1, keepdim=True) + 1e-9)  # mended
    optimizer.zero_grad()
    field = model(radius)
    (slope,) = torch.autograd.grad(field.sum(), points, create_graph=True)
    with torch.autocast("cpu", dtype=torch.float16):
        penalty = model(torch.ones(4, 1)).float().square().mean()
    loss = (slope.sum(1) - 1).square().mean() + penalty
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
