"""The inverse of tanh is taken of an action that is exactly 1.

area: reinforcement learning
cause: domain
operator: atanh
fix: clamp
shows: nan loss
source: rlworkgroup/garage PR#2129
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
actor = nn.Linear(6, 2)
optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=32.0)
actions = torch.tanh(torch.randn(16, 2) * 4).half().float()
actions[0, 0] = 1.0
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        mean = actor(torch.randn(16, 6)).float()
    raw = torch.atanh(actions)  # broken here
    raw = torch.atanh(actions.clamp(-1 + 1e-6, 1 - 1e-6))  # mended
    loss = (raw - mean).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
