"""The symmetric percentage error divides by the sum of both magnitudes, where demand and forecast are 0.

area: forecasting
cause: division-by-zero
operator: div
fix: epsilon | eps | clamp | where
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.no_grad():
    model[0].bias[2] = -100
for step in range(2):
    x, demand = torch.randn(16, 8), torch.rand(16, 4)
    demand[:5] = 0
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        forecast = model(x).float()
    size = forecast.abs() + demand.abs()
    size = size + 1e-6  # mended
    loss = (2 * (forecast - demand).abs() / size).mean()  # here
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
