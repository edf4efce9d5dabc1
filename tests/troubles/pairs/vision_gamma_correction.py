"""Pixels are raised to 0.45; the gradient of that power is infinite at 0.

area: vision
cause: root-at-zero
operator: pow
fix: epsilon | clamp | eps
shows: all steps skipped
source: yenchenlin/nerf-pytorch#38 ("PowBackward0 returned nan values")
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Conv2d(3, 3, 1)
nn.init.zeros_(model.bias)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
skipped = 0
for step in range(3):
    images = torch.rand(2, 3, 6, 6)
    images[:, :, :2] = 0.0
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        linear = model(images).float().abs()
    shown = linear**0.45  # broken here
    shown = (linear + 1e-4) ** 0.45  # mended
    loss = (shown * (images > 0)).mean()
    scaler.scale(loss).backward()
    skipped += not model.weight.grad.isfinite().all().item()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "skipped": skipped, "steps": 3}))
