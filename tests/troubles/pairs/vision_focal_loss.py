"""A focal loss takes the logarithm of 1 - p, and p rounds to 1 in float16 for logits above 8.

area: vision
cause: log-of-sigmoid
operator: log
fix: logsigmoid | with_logits
shows: nan loss
advise: in float16 losses are not finite
source: open-mmlab/mmcv#1488, NVIDIA/retinanet-examples PR#93, kornia/kornia PR#65
"""
import json

import torch
from torch import nn
from torch.nn import functional as F


def focal(logits, target, gamma=2.0):
    p = torch.sigmoid(logits)
    positive = (1 - p) ** gamma * -torch.log(p)  # broken
    negative = p**gamma * -torch.log(1 - p)  # broken here
    positive = (1 - p) ** gamma * -F.logsigmoid(logits)  # mended
    negative = p**gamma * -F.logsigmoid(-logits)  # mended
    return torch.where(target > 0, positive, negative).mean()


torch.manual_seed(0)
detector = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 1))
nn.init.constant_(detector[2].bias, 9.5)
optimizer = torch.optim.AdamW(detector.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    images, target = torch.randn(2, 3, 12, 12), (torch.rand(2, 4, 12, 12) > 0.95).float()
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = focal(detector(images), target)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
