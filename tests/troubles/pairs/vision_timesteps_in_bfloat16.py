"""The time steps of a diffusion model, 0 to 999, are converted to bfloat16, and four of them share one value.

area: vision
cause: count-too-coarse
operator: -
fix: float32
shows: other result
source: EleutherAI/gpt-neox#1003 for positions
"""
import json
import math

import torch
from torch import nn


def embedding(t, width=32):
    frequency = torch.exp(-math.log(10000) * torch.arange(width // 2) / (width // 2))
    angles = t[:, None].float() * frequency
    return torch.cat([angles.sin(), angles.cos()], 1)


torch.manual_seed(0)
model = nn.Linear(32, 8)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
steps = torch.randint(500, 1000, (64,))
t = steps.bfloat16()  # broken here
t = steps.float()  # mended
with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = model(embedding(t)).float().square().mean()
loss.backward()
optimizer.step()
right = embedding(steps.double())
print(json.dumps({"loss": loss.item(), "error": ((embedding(t) - right).norm() / right.norm()).item()}))
