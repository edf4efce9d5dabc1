"""The products of a diffusion schedule are taken in float16 and end at 0, whose root divides the noise.

area: vision
cause: division-by-zero
operator: div | rsqrt | reciprocal
fix: float32 | epsilon | + eps | clamp | where(
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 16)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
kind = torch.float16  # broken
kind = torch.float64  # mended
betas = torch.linspace(1e-3, 0.06, 1000).to(kind)
share = torch.cumprod(1 - betas, 0)
weight = (1 / share.sqrt()).float()  # here
for step in range(3):
    t = torch.tensor([10, 500, 990, 999])
    x, noise = torch.randn(4, 16), torch.randn(4, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        guess = model(x).float()
    loss = ((guess - noise) * weight[t, None].clamp(max=1e30)).tanh().square().mean() * (weight[t] / weight[t].max()).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
