"""Features of a region are written by index into a float32 buffer; torch wants one dtype.

area: vision
cause: dtype-mismatch
operator: -
fix: .to( | cast
shows: error
ampc: runs
source: pytorch/pytorch#46178, #132715 ("Index put requires the source and destination dtypes match")
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model, head = nn.Linear(8, 16), nn.Linear(16, 2)
optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(2):
    x, visible = torch.randn(12, 8), torch.arange(12) % 3 > 0
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        grid = torch.zeros(12, 16)
        features = torch.relu(model(x[visible]))
        grid[visible] = features  # broken here
        grid[visible] = features.to(grid.dtype)  # mended
        loss = nn.functional.cross_entropy(head(grid).float(), torch.arange(12) % 2)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
