"""scaler.update() is forgotten: the second step fails, because the scaler still holds the first one's record.

area: optimizers
cause: update-missing
operator: -
fix: update()
shows: error
source: "step() has already been called since the last update()" (torch.amp); huggingface/transformers#23905
"""
import json

import torch
from torch import nn


def step(model, optimizer, scaler, x, y):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # here
    scaler.update()  # mended
    return loss.item()


torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for i in range(3):
    loss = step(model, optimizer, scaler, torch.randn(16, 8), torch.randint(0, 2, (16,)))
print(json.dumps({"loss": loss}))
