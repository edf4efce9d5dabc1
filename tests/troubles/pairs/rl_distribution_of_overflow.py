"""A policy's float16 logits overflow in a product, and Categorical refuses them some lines later.

area: reinforcement learning
cause: product-overflow
operator: linear | addmm | mm
fix: bfloat16 | float() | smaller
shows: error
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
body, policy = nn.Linear(6, 64), nn.Linear(64, 4)
optimizer = torch.optim.Adam([*body.parameters(), *policy.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(3):
    states = torch.rand(16, 6) * 255  # pixels, not scaled to 1
    states = states / 255  # mended
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        hidden = torch.relu(body(states)) * 100
        logits = policy(hidden)  # here
        if step == 0:
            policy.weight.data.mul_(40)
    chosen = torch.distributions.Categorical(logits=logits.float())
    action = chosen.sample()
    loss = -(chosen.log_prob(action) * torch.randn(16)).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
