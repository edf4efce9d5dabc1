"""Micro-batches: the loss is divided, and unscale_, clipping, step and update come after the last."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
every = 4
for i in range(12):
    x, y = torch.randn(4, 8), torch.randint(0, 2, (4,))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y) / every
    scaler.scale(loss).backward()
    if (i + 1) % every == 0:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
print(json.dumps({"loss": loss.item()}))
