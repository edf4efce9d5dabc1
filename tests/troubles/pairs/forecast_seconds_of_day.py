"""The second of the day, up to 86399, is cast to float16, which ends at 65504: every evening is infinite.

area: forecasting
cause: cast-overflow
operator: cast
fix: can hold | float()
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
seconds = torch.arange(0, 86400, 3600)
for step in range(2):
    day = seconds.half() / 86400  # broken here
    day = (seconds / 86400).half()  # mended
    x = torch.cat([day[:, None].float(), torch.randn(24, 3)], 1)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(x).float(), torch.randn(24, 1))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
