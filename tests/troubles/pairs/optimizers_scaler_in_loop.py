"""A new scaler is made in every step: the scale is always the first one, which is too high, and no step is ever taken.

area: optimizers
cause: scaler-in-loop
operator: -
fix: once, before the loop
shows: all steps skipped
source: pytorch/examples#1196
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
skipped, steps = 0, 30
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)  # mended
for step in range(steps):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)  # broken here
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    before = model.weight.detach().clone()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    skipped += torch.equal(model.weight, before)
print(json.dumps({"loss": loss.item(), "skipped": skipped, "steps": steps}))
