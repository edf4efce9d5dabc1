"""Labels that are nan are left out of the loss by an index."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    x, y = torch.randn(16, 6), torch.randn(16, 4)
    y[torch.rand(16, 4) < 0.3] = float("nan")
    there = ~y.isnan()
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(x).float()
    loss = nn.functional.mse_loss(out[there], y[there])
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
