"""The weight of a trajectory is the product of its steps' ratios, in float16.

area: reinforcement learning
cause: power-overflow
operator: prod | cumprod | mul
fix: float() | bfloat16 | float32
shows: nan loss
source: importance sampling over trajectories; kscalelabs/minppo PR#19
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Linear(4, 3)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
old = torch.full((6, 20), -1.9)
for step in range(2):
    states, actions, returns = torch.randn(6, 20, 4), torch.randint(0, 3, (6, 20, 1)), torch.randn(6)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = policy(states)
    new = torch.log_softmax(logits.float(), -1).gather(2, actions).squeeze(2)
    ratio = (new - old).exp().half()
    weight = ratio.prod(1)  # broken here
    weight = (new - old).sum(1).clamp(max=5.0).exp()  # mended
    loss = -(weight.float() / weight.float().sum() * returns).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
