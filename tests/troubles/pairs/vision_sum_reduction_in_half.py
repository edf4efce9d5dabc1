"""A squared error with reduction="sum" of float16 outputs, outside the region: the sum is infinite.

area: vision
cause: sum-overflow
operator: mse_loss | sum
fix: float32 | float()
shows: nan loss
source: qubvel-org/segmentation_models.pytorch#463, PaddlePaddle/Paddle PR#74070
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
coder = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 3, padding=1))
optimizer = torch.optim.Adam(coder.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
for step in range(2):
    images = torch.rand(4, 3, 48, 48) * 4
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        again = coder(images)
    loss = nn.functional.mse_loss(again, images.half(), reduction="sum")  # broken here
    loss = nn.functional.mse_loss(again.float(), images, reduction="sum")  # mended
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
