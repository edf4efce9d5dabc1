"""The loss is scaled by the trainer and again by the loss function; one factor is never divided away.

area: optimizers
cause: scaled-twice
operator: -
fix: once
shows: other result
source: wrappers around losses that scale, too; huggingface/accelerate#439 is its kin
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)


def criterion(out, y):
    loss = nn.functional.cross_entropy(out.float(), y)
    return scaler.scale(loss)  # broken
    return loss  # mended


error = 0.0
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = criterion(model(x), y)
    scaler.scale(loss).backward()  # here
    scaler.unscale_(optimizer)
    right = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), model.weight)[0]
    error = max(error, ((model.weight.grad - right).norm() / right.norm()).item())
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "error": error}))
