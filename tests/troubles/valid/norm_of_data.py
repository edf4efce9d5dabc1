"""Inputs are divided by their length before the training; no gradient is taken of it, and no row is 0."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

data = torch.randn(48, 8)
data = data / torch.sqrt((data**2).sum(1, keepdim=True))
for step in range(3):
    x, y = data[step * 16:step * 16 + 16], torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
