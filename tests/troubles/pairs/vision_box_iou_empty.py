"""The overlap of boxes is divided by the union of their areas, which is 0 for two empty boxes.

area: vision
cause: division-by-zero
operator: div
fix: + eps | epsilon | clamp | where(
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn


def iou(a, b):
    low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    inner = (high - low).clamp(min=0).prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - inner
    return inner / union  # broken here
    return inner / (union + 1e-4)  # mended


torch.manual_seed(0)
model = nn.Linear(10, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    x, truth = torch.randn(6, 10), torch.rand(6, 4)
    truth[:, 2:] += truth[:, :2]
    x[0], truth[0] = -100.0, 0.5  # an empty annotation
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        size = torch.relu(model(x).float())
        centre = truth[:, :2].detach()
        size = torch.where(x[:, :1] < -99, torch.zeros(()), size)
        loss = (1 - iou(torch.cat([centre, centre + size[:, 2:]], 1), truth)).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
