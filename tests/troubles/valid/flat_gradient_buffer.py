"""All gradients are views of one buffer, which is zeroed as a whole."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

flat = torch.zeros(sum(p.numel() for p in model.parameters()))
at = 0
for p in model.parameters():
    p.grad = flat[at:at + p.numel()].view_as(p)
    at += p.numel()
for step in range(3):
    flat.zero_()
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
