"""The angle between unit vectors is the arc cosine of their product, which rounding lifts above 1.

area: vision
cause: domain
operator: acos
fix: clamp
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(3):
    x = torch.randn(64, 6)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        a = nn.functional.normalize(model(x), dim=1)
    b = a.detach().float()
    cosine = (a.float() * b).sum(1)
    angle = torch.acos(cosine)  # broken here
    angle = torch.acos(cosine.clamp(-1 + 1e-4, 1 - 1e-4))  # mended
    loss = angle.mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
