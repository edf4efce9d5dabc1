"""The weights of a replay buffer are a negative power of priorities, of which one is 0.

area: reinforcement learning
cause: power-of-zero
operator: pow
fix: clamp | epsilon
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
value = nn.Linear(4, 1)
optimizer = torch.optim.Adam(value.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
priorities = torch.rand(16)
priorities[3] = 0.0
for step in range(3):
    states, returns = torch.randn(16, 4), torch.randn(16)
    weights = (16 * priorities) ** -0.4  # broken here
    weights = (16 * priorities + 1e-5) ** -0.4  # mended
    weights = weights / weights.max()
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = (weights * (value(states).squeeze(1).float() - returns) ** 2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
