"""A normalisation by hand takes mean(x^2) - mean(x)^2 of large values; rounding makes it negative, and its root nan.

area: vision
cause: variance-by-difference
operator: sqrt
fix: var(
shows: nan loss
source: implus/PytorchInsight#32, joe-siyuan-qiao/WeightStandardization#16
"""
import json

import torch
from torch import nn


class Normalise(nn.Module):
    def forward(self, x):
        mean = x.mean((2, 3), keepdim=True)
        variance = (x * x).mean((2, 3), keepdim=True) - x.mean((2, 3), keepdim=True) ** 2  # broken here
        variance = x.var((2, 3), keepdim=True, correction=0)  # mended
        return (x - mean) / torch.sqrt(variance + 1e-5)  # here


torch.manual_seed(0)
model = nn.Sequential(Normalise(), nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 196, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    images, labels = torch.rand(4, 3, 16, 16) * 0.001 + 200.3, torch.randint(0, 4, (4,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(images).float(), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
