"""The targets of a regression have a nan that nobody left out.

area: vision
cause: bad-data
operator: -
fix: batch
shows: nan loss
advise: not finite in float32 either
source: LinShan-Bin/OccNeRF#5
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    images, depth = torch.rand(2, 3, 8, 8), torch.rand(2, 1, 8, 8)
    depth[0, 0, 2:4, 2:4] = float("nan")
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(images).float()
    loss = nn.functional.l1_loss(out, depth)  # broken here
    known = ~depth.isnan()  # mended
    loss = nn.functional.l1_loss(out[known], depth[known])  # mended
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
