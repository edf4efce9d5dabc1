"""The outputs for two views of a picture nearly agree in float16, and their squared distance has a weight of 100."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    x = torch.randn(8, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        a, b = model(x), model(x + 1e-3 * torch.randn(8, 16))
        loss = 100 * (a - b).float().square().mean() + (a.float() - 1).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
