"""A loss scale of one's own, fixed, with its own division and its own test for infinities."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scale = 1024.0
for step in range(4):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    (loss * scale).backward()
    with torch.no_grad():
        for p in model.parameters():
            p.grad.div_(scale)
    if all(p.grad.isfinite().all() for p in model.parameters()):
        optimizer.step()
print(json.dumps({"loss": loss.item()}))
