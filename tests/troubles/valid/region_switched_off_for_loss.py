"""The loss is computed in float32 in a nested region that is switched off."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    x = torch.randn(8, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        z = model(x)
        with torch.autocast("cpu", enabled=False):
            z = nn.functional.normalize(z.float(), dim=1)
            loss = nn.functional.cross_entropy(z @ z.T / 0.07, torch.arange(8))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
