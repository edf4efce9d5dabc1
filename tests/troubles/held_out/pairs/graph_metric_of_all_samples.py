"""The mean absolute error is computed over all graphs of the validation set at once, in float16.

area: graphs
cause: sum-overflow
operator: sum
fix: float32 | float() | mean | bfloat16
ampc: runs
shows: nan loss
source: datamol-io/graphium#406, PR#429
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    x, y = torch.randn(32, 8), torch.rand(32, 1) * 200
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.l1_loss(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
    x, y = torch.randn(4000, 8), torch.rand(4000, 1) * 200
    error = (model(x) - y.half()).abs()  # broken
    error = (model(x).float() - y).abs()  # mended
    metric = torch.sum(error) / len(y)  # here
print(json.dumps({"loss": metric.item()}))
