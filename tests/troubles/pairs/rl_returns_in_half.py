"""Rewards are added up along an episode in float16, whose largest number is 65504.

area: reinforcement learning
cause: sum-overflow
operator: cumsum | sum
fix: float32 | float()
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
for step in range(2):
    states, rewards = torch.randn(200, 4), (torch.rand(200) * 1000).half()
    returns = rewards.flip(0).cumsum(0).flip(0)  # broken here
    returns = rewards.float().flip(0).cumsum(0).flip(0)  # mended
    returns = (returns.float() - returns.float().mean()) / returns.float().std()
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        guess = value(states).squeeze(1)
    loss = (guess.float() - returns).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
