"""unscale_ is called once to log the norm and once to clip.

area: optimizers
cause: unscale-twice
operator: -
fix: once
shows: error
source: microsoft/Swin-Transformer#311, LVSM#19
"""
import json

import torch
from torch import nn


def norm_of(model, optimizer, scaler):
    scaler.unscale_(optimizer)
    return sum(p.grad.norm() ** 2 for p in model.parameters()) ** 0.5


torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    norm = norm_of(model, optimizer, scaler)
    scaler.unscale_(optimizer)  # broken here
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "norm": norm.item()}))
