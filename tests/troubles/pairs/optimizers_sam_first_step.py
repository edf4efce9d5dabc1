"""Sharpness-aware steps: the first step takes scaled gradients for plain ones and leaves the neighbourhood.

area: optimizers
cause: edit-scaled-gradients
operator: -
fix: unscale_
shows: other result
source: davda54/sam#55, #79, #97; juntang-zhuang/GSAM#2
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)


def loss_of(x, y):
    with torch.autocast("cpu", dtype=torch.float16):
        return nn.functional.cross_entropy(model(x).float(), y)


climbed = 0.0
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    scaler.scale(loss_of(x, y)).backward()
    by = 1.0  # broken
    by = 1 / scaler.get_scale()  # mended
    with torch.no_grad():
        climb = [0.1 * p.grad * by for p in model.parameters()]  # here
        for p, c in zip(model.parameters(), climb):
            p.add_(c)
    climbed = max(climbed, sum(c.norm().item() for c in climb))
    optimizer.zero_grad()
    loss = loss_of(x, y)
    scaler.scale(loss).backward()
    with torch.no_grad():
        for p, c in zip(model.parameters(), climb):
            p.sub_(c)
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "error": max(0.0, climbed - 1.0)}))
