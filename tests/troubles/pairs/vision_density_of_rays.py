"""A radiance field's density is exp of a raw output in float16.

area: vision
cause: exp-overflow
operator: exp
fix: clamp
shows: all steps skipped
source: nerfstudio-project/nerfstudio PR#104, ashawkey/torch-ngp#28
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
field = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1))
with torch.no_grad():
    field[2].bias.fill_(12.5)
optimizer = torch.optim.Adam(field.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
skipped = 0
for step in range(3):
    points = torch.rand(64, 8, 3) * 4
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        raw = field(points).squeeze(-1)
    density = torch.exp(raw)  # broken here
    density = torch.exp(raw.float().clamp(max=15.0))  # mended
    alpha = 1 - torch.exp(-density * 1e-3)
    behind = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-3], 1), 1)[:, :-1]
    weights = alpha * behind
    depth = (weights.float() * torch.linspace(0, 1, 8)).sum(1)
    loss = (depth.float() - 0.5).square().mean()
    scaler.scale(loss).backward()
    skipped += any(not p.grad.isfinite().all() for p in field.parameters())
    scaler.step(optimizer)
    scaler.update(1.0)
print(json.dumps({"loss": loss.item(), "skipped": skipped, "steps": 3}))
