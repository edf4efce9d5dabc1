"""All weights are bfloat16 and the learning rate is that of fine-tuning: the updates are smaller than half a unit of the last digit.

area: language
cause: weights-too-coarse
operator: -
fix: float32
shows: weights do not move
source: pytorch/pytorch#120376, PR#37967; bitsandbytes#1165
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
with torch.no_grad():
    for p in model.parameters():
        p.add_(p.sign() * 0.25)
model = model.bfloat16()  # broken
before = [p.detach().float().clone() for p in model.parameters()]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0)
for step in range(20):
    x = torch.randn(16, 32)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (model(x) - x.roll(1, 1)).float().square().mean()
    loss.backward()
    optimizer.step()  # here
moved = sum((p.detach().float() - b).abs().sum().item() for p, b in zip(model.parameters(), before))
print(json.dumps({"loss": loss.item(), "moved": moved / sum(p.numel() for p in model.parameters()) / 20e-5}))
