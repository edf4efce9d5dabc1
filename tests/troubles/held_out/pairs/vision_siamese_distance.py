"""A siamese network takes the root of a sum of squares, of a pair of the same picture.

area: vision
cause: norm-by-hand
also: root-at-zero
operator: sqrt | pow
fix: vector_norm | eps | epsilon
shows: nan loss
source: keras-team/keras#9097
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(2):
    a = torch.randn(6, 8)
    b = a.clone()
    b[3:] = torch.randn(3, 8)
    same = (torch.arange(6) < 3).float()
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        u, v = model(a).float(), model(b).float()
    squares = torch.square(u - v)
    total = squares.sum(1)
    distance = total.sqrt()  # broken here
    distance = (total + 1e-6).sqrt()  # mended
    loss = (same * distance + (1 - same) * torch.relu(1 - distance)).mean()
    loss = loss * 1.0
    scaler.scale(loss).backward()
    bad = any(p.grad.isnan().any() for p in model.parameters())
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": float("nan") if bad else loss.item()}))
