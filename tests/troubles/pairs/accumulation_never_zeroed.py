"""zero_grad() is forgotten: scaled gradients are added to the unscaled ones of all earlier steps.

area: accumulation
cause: leftover-gradients
operator: -
fix: zero_grad
shows: other result
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(12, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
error = 0.0
for step in range(4):
    x, y = torch.randn(8, 12), torch.randint(0, 4, (8,))
    optimizer.zero_grad()  # mended
    right = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), model.weight)[0]
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # here
    error = max(error, ((model.weight.grad - right).norm() / right.norm()).item())
    scaler.update()
print(json.dumps({"loss": loss.item(), "error": error}))
