"""Counts in float16 that stay below 2048, where it holds every integer."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 4)
seen = torch.zeros(4, dtype=torch.float16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(5):
    x, y = torch.randn(16, 8), torch.randint(0, 4, (16,))
    seen += torch.bincount(y, minlength=4)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "seen": seen.sum().item()}))
