"""A distance with an epsilon under the root, and a norm of gradients that is only printed."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

for step in range(3):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        z = model(x).float()
    loss = torch.sqrt((z**2).sum(1) + 1e-8).mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    with torch.no_grad():
        size = torch.sqrt((model.weight.grad**2).sum())
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "size": size.item()}))
