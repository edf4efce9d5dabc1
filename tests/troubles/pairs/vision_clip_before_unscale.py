"""Gradients of a small convolutional net are clipped before the scaler divides them, so the limit holds for gradients times the scale.

area: vision
cause: clip-scaled-gradients
operator: -
fix: unscale_
shows: weights do not move
source: Lightning-AI/pytorch-lightning#9330, milesial/Pytorch-UNet PR#470
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
before = [p.detach().clone() for p in model.parameters()]
for step in range(5):
    images, labels = torch.randn(16, 3, 8, 8), torch.randint(0, 10, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = criterion(model(images), labels)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)  # mended
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.1)  # here
    scaler.step(optimizer)
    scaler.update()
moved = sum(((p - b) ** 2).sum().item() for p, b in zip(model.parameters(), before)) ** 0.5
print(json.dumps({"loss": loss.item(), "moved": moved / (5 * 0.1 * 0.1)}))
