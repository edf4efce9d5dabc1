"""The gradient penalty's norm is the root of a sum of squares, and one sample's gradient is exactly 0.

area: gan
cause: norm-by-hand
operator: sqrt
fix: epsilon | vector_norm
shows: all steps skipped
source: Zeleni9/pytorch-wgan#40, pytorch/pytorch#2421
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
nn.init.constant_(critic[0].bias, -0.1)
skipped = 0
for step in range(3):
    between = torch.randn(16, 8)
    between[0] = 0.0
    between.requires_grad_()
    optimizer.zero_grad()
    (grad,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    norm = torch.sqrt((grad**2).sum(1))  # broken here
    norm = torch.sqrt((grad**2).sum(1) + 1e-12)  # mended
    with torch.autocast("cpu", dtype=torch.float16):
        loss = -critic(torch.randn(16, 8)).float().mean()
    loss = loss + (norm - 1).square().mean()
    scaler.scale(loss).backward()
    skipped += any(not p.grad.isfinite().all() for p in critic.parameters() if p.grad is not None)
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "skipped": skipped, "steps": 3}))
