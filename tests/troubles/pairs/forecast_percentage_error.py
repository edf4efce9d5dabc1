"""The percentage error divides by the true value, and some days have none.

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

torch.manual_seed(0)
model = nn.GRU(3, 16, batch_first=True)
head = nn.Linear(16, 1)
optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(3):
    x, sold = torch.randn(8, 6, 3), torch.randint(0, 5, (8, 1)).float()
    sold[0] = 0.0
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        guess = head(model(x)[0][:, -1]).float()
    loss = ((guess - sold).abs() / sold).mean()  # broken here
    loss = ((guess - sold).abs() / (sold + 0.5)).mean()  # mended
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
