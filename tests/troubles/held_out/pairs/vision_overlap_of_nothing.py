"""The overlap of a class that is neither in the picture nor in the prediction is 0 / 0.

area: vision
cause: division-by-zero
operator: div
fix: epsilon | eps | clamp | smooth | where
shows: nan loss
source: a common pattern of overlap losses; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Conv2d(1, 3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
smooth = 0.0  # broken
smooth = 1.0  # mended
for step in range(2):
    x, target = torch.randn(2, 1, 8, 8), torch.zeros(2, 3, 8, 8)
    target[:, 0] = 1
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        p = nn.functional.relu(model(x) - torch.tensor([0.0, 100.0, 0.0]).view(1, 3, 1, 1)).float()
    over = (p * target).sum((0, 2, 3))
    both = p.sum((0, 2, 3)) + target.sum((0, 2, 3))
    loss = 1 - ((2 * over + smooth) / (both + smooth)).mean()  # here
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
