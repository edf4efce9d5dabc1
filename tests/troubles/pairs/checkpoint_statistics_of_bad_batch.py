"""One batch with a nan was skipped by the scaler, but batch normalisation had put it into its statistics; evaluation is nan.

area: checkpoint
cause: bad-data
also: bad-buffer
operator: -
fix: batch
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(4):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    if step == 2:
        x[3, 2] = float("nan")
    x = torch.nan_to_num(x)  # mended
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)  # here
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
model.eval()
with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
    loss = nn.functional.cross_entropy(model(torch.randn(16, 8)).float(), torch.randint(0, 2, (16,)))
print(json.dumps({"loss": loss.item()}))
