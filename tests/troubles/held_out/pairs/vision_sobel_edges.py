"""The edge strength of a flat picture is the root of zero.

area: vision
cause: norm-by-hand
also: root-at-zero
operator: sqrt
fix: eps | add | vector_norm | hypot
shows: nan loss
source: chaddy1004/sobel-operator-pytorch#1
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Conv2d(1, 1, 3, padding=1, padding_mode="replicate")
nn.init.zeros_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kernel = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
for step in range(2):
    x = torch.ones(2, 1, 8, 8)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        picture = model(x).float()
    gx = nn.functional.conv2d(picture, kernel[None, None])
    gy = nn.functional.conv2d(picture, kernel.t()[None, None])
    edges = torch.sqrt(gx * gx + gy * gy)  # broken here
    edges = torch.sqrt(gx * gx + gy * gy + 1e-6)  # mended
    loss = (edges - 0.5).square().mean()
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item() + model.weight.sum().item()}))
