"""Gradients are clipped after the step that used them.

area: optimizers
cause: clip-after-step
operator: -
fix: before
shows: other result
source: pytorch/examples#1196 and reviews of training loops
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
error = 0.0
for step in range(3):
    x, y = torch.randn(16, 8) * 5, torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    before = model.weight.detach().clone()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)  # mended
    scaler.step(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)  # broken here
    scaler.update()
    error = max(error, (model.weight.detach() - before).norm().item() - 0.1)
print(json.dumps({"loss": loss.item(), "error": error}))
