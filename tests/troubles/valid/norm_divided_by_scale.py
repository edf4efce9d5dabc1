"""The norm of scaled gradients is divided by the scale before it is logged."""
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
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm() / scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "norm": norm.item()}))
