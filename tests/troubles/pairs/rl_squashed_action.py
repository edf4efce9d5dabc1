"""Soft actor-critic: log(1 - tanh(u)^2 + 1e-6) in float16, where tanh rounds to 1 and 1e-6 is lost beside 1.

area: reinforcement learning
cause: log-of-zero
operator: log
fix: clamp | softplus | epsilon
shows: nan loss
source: philtabor/Actor-Critic-Methods-Paper-To-Code#7, cpnota/autonomous-learning-library#139
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))
nn.init.constant_(actor[2].bias, 9.0)
optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=32.0)
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        u = actor(torch.randn(16, 6))
    action = torch.tanh(u)
    correction = torch.log(1 - action.pow(2) + 1e-8)  # broken here
    correction = 2 * (0.6931 - u.float() - nn.functional.softplus(-2 * u.float()))  # mended
    loss = -correction.float().mean() + action.float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
