"""scaler.step(optimizer) and optimizer.step() are both called, and every update is made twice.

area: optimizers
cause: step-twice
also: step-on-scaled-gradients
operator: -
fix: scaler.step | leave
shows: other result
source: scripts that were given a scaler later; pytorch/pytorch#152279
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
error = 0.0
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    before = model.weight.detach().clone()
    scaler.step(optimizer)
    step_of = 0.01 * model.weight.grad
    optimizer.step()  # broken here
    scaler.update()
    error = max(error, ((before - model.weight.detach() - step_of).norm() / step_of.norm()).item())
print(json.dumps({"loss": loss.item(), "error": error}))
