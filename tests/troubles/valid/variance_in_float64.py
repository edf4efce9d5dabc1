"""mean(x^2) - mean(x)^2 in float64, of values of size 1."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    wide = x.double()
    spread = (wide**2).mean(0) - wide.mean(0) ** 2
    x = ((wide - wide.mean(0)) / (spread + 1e-6).sqrt()).float()
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
