"""update() is called after every micro-batch, although nothing was stepped: torch finds no record of infinities.

area: accumulation
cause: mixed-scales
operator: -
fix: after scaler.step | branch of scaler.step
shows: error
source: pytorch/pytorch PR#36601, microsoft/Swin-Transformer#311
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(12, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=1)
for i in range(8):
    x, y = torch.randn(8, 12), torch.randint(0, 4, (8,))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y) / 4
    scaler.scale(loss).backward()
    if (i + 1) % 4 == 0:
        scaler.step(optimizer)
        scaler.update()  # mended
        optimizer.zero_grad()
    scaler.update()  # broken here
print(json.dumps({"loss": loss.item()}))
