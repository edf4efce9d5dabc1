"""The moving average of the weights is kept in float16: one step in a thousandth is smaller than half a unit of the last digit.

area: ema
cause: weights-too-coarse
operator: lerp_ | mul_ | add_
fix: float32
shows: weights do not move
source: d8ahazard/sd_dreambooth_extension PR#1415
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.LayerNorm(64, bias=False), nn.Linear(64, 64, bias=False))
nn.init.uniform_(model[1].weight, 0.5, 1.0)
average = [p.detach().clone().half() for p in model.parameters()]  # broken
average = [p.detach().clone() for p in model.parameters()]  # mended
before = [a.float().clone() for a in average]
optimizer = torch.optim.SGD(model.parameters(), lr=0.0002)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(20):
    x = torch.randn(32, 64)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = (model(x).float() - x).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    with torch.no_grad():
        for a, p in zip(average, model.parameters()):
            a.lerp_(p.to(a.dtype), 1e-4)  # here
way = sum((p.detach() - b).norm().item() for p, b in zip(model.parameters(), before)) * 1e-4 * 10
moved = sum((a.float() - b).norm().item() for a, b in zip(average, before))
print(json.dumps({"loss": loss.item(), "moved": moved / way}))
