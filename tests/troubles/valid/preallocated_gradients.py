"""Gradients are made as zeros before the loop, and backward adds to them."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

for p in model.parameters():
    p.grad = torch.zeros_like(p)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    for p in model.parameters():
        p.grad *= 0
print(json.dumps({"loss": loss.item()}))
