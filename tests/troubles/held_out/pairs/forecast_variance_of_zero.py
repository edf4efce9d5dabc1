"""The predicted variance is a softplus in float16, which is 0 for a very sure model, and the error is divided by it.

area: forecasting
cause: division-by-zero
operator: div
fix: epsilon | eps | clamp | float32 | where
shows: nan loss
source: kscalelabs/minppo PR#19 for a deviation near 0
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
with torch.no_grad():
    model.bias[1] = -30
for step in range(2):
    x, y = torch.randn(16, 8), torch.randn(16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        mean, raw = model(x).unbind(1)
        variance = nn.functional.softplus(raw.float()).half()
        variance = nn.functional.softplus(raw.float()) + 1e-3  # mended
        off = (y.to(variance.dtype) - mean.to(variance.dtype)) ** 2
        loss = (off / variance).float().mean() * 1e-3  # here
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
