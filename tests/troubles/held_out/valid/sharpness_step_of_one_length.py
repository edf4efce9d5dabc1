"""A sharpness-aware step divides scaled gradients by their own norm, so the scale cancels; the second gradients go through the scaler."""
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


for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    scaler.scale(loss_of(x, y)).backward()
    with torch.no_grad():
        squares = sum((p.grad * p.grad).sum() for p in model.parameters())
        factor = 0.05 / (squares.item() ** 0.5 + 1e-12)
        climb = [factor * p.grad for p in model.parameters()]
        for p, c in zip(model.parameters(), climb):
            p.add_(c)
    optimizer.zero_grad()
    loss = loss_of(x, y)
    scaler.scale(loss).backward()
    with torch.no_grad():
        for p, c in zip(model.parameters(), climb):
            p.sub_(c)
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
