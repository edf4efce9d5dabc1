"""The average of a bfloat16 model is made by operations on lists, with a decay of 0.9998.

area: ema
cause: weights-too-coarse
operator: -
fix: float32
shows: weights do not move
source: PaddlePaddle/PaddleMIX PR#515, lucidrains/ema-pytorch PR#18
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4))
for p in model.parameters():
    nn.init.uniform_(p, 0.5, 1.0)
kind = torch.bfloat16  # broken
kind = torch.float32  # mended
average = [p.detach().to(kind) for p in model.parameters()]
start = [a.clone() for a in average]
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(15):
    x = torch.randn(16, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(x).float().square().mean()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        now = [p.detach().to(kind) for p in model.parameters()]
        torch._foreach_lerp_(average, now, 2e-4)  # here
way = sum((p.detach() - s.float()).norm().item() for p, s in zip(model.parameters(), start)) * 2e-4 * 7
moved = sum((a.float() - b.float()).norm().item() for a, b in zip(average, start))
print(json.dumps({"loss": loss.item(), "moved": moved / way}))
