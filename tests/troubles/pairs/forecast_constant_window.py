"""Windows of a series are normalised by their deviation, and one machine stood still.

area: forecasting
cause: division-by-zero
operator: div
fix: epsilon | + eps | clamp | where(
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn


class Normalised(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        mean, spread = x.mean(1, keepdim=True), x.std(1, keepdim=True)
        x = (x - mean) / spread  # broken here
        x = (x - mean) / (spread + 1e-5)  # mended
        return self.inner(x) * spread + mean


torch.manual_seed(0)
model = Normalised(nn.Linear(12, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    series = torch.randn(6, 16).cumsum(1)
    series[5] = 3.0
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.l1_loss(model(series[:, :12]).float(), series[:, 12:])
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
