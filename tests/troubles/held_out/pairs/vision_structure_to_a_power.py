"""The contrast term of two pictures is negative, and multi-scale similarity raises it to a power.

area: vision
cause: domain
operator: pow
fix: relu | clamp | positive | negative | abs
shows: nan loss
source: a common pattern of multi-scale structural similarity; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Conv2d(1, 1, 3, padding=1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(2):
    x = torch.rand(2, 1, 16, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = 1 - x + 0.01 * model(x).float()
    scales = []
    a, b = x, y
    for scale in range(3):
        ma, mb = a.mean((2, 3), keepdim=True), b.mean((2, 3), keepdim=True)
        covariance = ((a - ma) * (b - mb)).mean((2, 3))
        spread = ((a - ma) ** 2).mean((2, 3)) + ((b - mb) ** 2).mean((2, 3))
        scales.append((2 * covariance + 9e-4) / (spread + 9e-4))
        a, b = nn.functional.avg_pool2d(a, 2), nn.functional.avg_pool2d(b, 2)
    terms = torch.stack(scales)
    terms = torch.relu(terms) + 1e-4  # mended
    weights = torch.tensor([0.3, 0.3, 0.4])[:, None, None]
    loss = 1 - torch.prod(torch.pow(terms, weights), 0).mean()  # here
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
