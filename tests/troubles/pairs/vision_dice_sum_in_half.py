"""A Dice loss counts the pixels of masks in float16: more than 65504 of them are infinitely many, and the gradient is 0.

area: vision
cause: sum-overflow
operator: sum
fix: float32 | float()
shows: weights do not move
source: qubvel-org/segmentation_models.pytorch#463
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Conv2d(1, 1, 3, padding=1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
before = model.weight.detach().clone()
images = torch.rand(1, 1, 320, 320)
target = (images > 0.1).half()
for step in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        p = torch.sigmoid(model(images))
    together = (p * target).sum(dtype=torch.float32)  # mended
    either = p.sum(dtype=torch.float32) + target.sum(dtype=torch.float32)  # mended
    together = (p * target).sum()  # broken
    either = p.sum() + target.sum()  # broken here
    loss = 1 - together / either * 2
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "moved": float(not torch.equal(model.weight, before))}))
