"""Gradients are divided by the scale by hand, and the optimizer steps itself."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    with torch.no_grad():
        for p in model.parameters():
            p.grad.div_(scaler.get_scale())
    if all(p.grad.isfinite().all() for p in model.parameters()):
        optimizer.step()
print(json.dumps({"loss": loss.item()}))
