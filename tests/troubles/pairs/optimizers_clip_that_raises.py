"""Clipping is told to raise for gradients that are not finite, which the scaler would have skipped.

area: optimizers
cause: clip-raises
operator: -
fix: error_if_nonfinite
shows: error
source: pytorch/pytorch#46849, PR#55169, #185915; lightly-ai/lightly-train#255
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
for step in range(12):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)  # broken here
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # mended
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
