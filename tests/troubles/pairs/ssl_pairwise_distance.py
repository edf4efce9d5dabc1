"""All pairs of embeddings, each with itself, too: the root of 0 on the diagonal, multiplied by a mask afterwards.

area: self-supervision
cause: norm-by-hand
operator: sqrt
fix: vector_norm | epsilon
shows: all steps skipped
source: pytorch/pytorch#2421
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Linear(8, 4)
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
skipped, others = 0, 1 - torch.eye(10)
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        z = encoder(torch.randn(10, 8)).float()
    squares = ((z[:, None] - z[None]) ** 2).sum(-1)
    apart = torch.sqrt(squares) * others  # broken here
    apart = torch.sqrt(squares + 1e-9) * others  # mended
    loss = torch.relu(1 - apart).mean()
    scaler.scale(loss).backward()
    skipped += not encoder.weight.grad.isfinite().all().item()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "skipped": skipped, "steps": 3}))
