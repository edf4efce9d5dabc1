"""Positions of a short text are counted in bfloat16, which has all whole numbers up to 256."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
positions = torch.arange(200, dtype=torch.bfloat16)
angles = positions[:, None].float() * (1.0 / 10000 ** (torch.arange(8).float() / 8))
for step in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = torch.cat([angles.cos(), angles.sin()], 1)
        loss = model(x).float().square().mean()
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
