"""A loss is averaged over the pixels of a mask, and a batch has none: the mean of nothing is nan.

area: vision
cause: mean-of-nothing
operator: mean | div
fix: empty | ignore | at least one
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Conv2d(3, 1, 3, padding=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    images = torch.rand(2, 3, 8, 8)
    mask = images[:, :1] > (0.5 if step < 2 else 2.0)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(images).float()
    loss = (out - 1)[mask].abs().mean()  # broken here
    loss = (out - 1)[mask].abs().sum() / mask.sum().clamp(min=1)  # mended
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
