"""Noise and weight decay are added to gradients by hand, after unscale_."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    with torch.no_grad():
        for p in model.parameters():
            p.grad.add_(p, alpha=1e-2).add_(torch.randn_like(p), alpha=1e-3)
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
