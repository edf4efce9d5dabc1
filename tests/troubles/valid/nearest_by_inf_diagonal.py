"""The nearest other sample: the distance to itself is set to inf before the minimum."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        z = model(torch.randn(12, 8)).float()
    apart = torch.cdist(z, z) + torch.diag(torch.full((12,), float("inf")))
    nearest = apart.amin(1)
    loss = -torch.log(nearest + 1e-3).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
