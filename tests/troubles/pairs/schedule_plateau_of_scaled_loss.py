"""ReduceLROnPlateau is given the scaled loss, which jumps whenever the scale grows, and lowers the rate for nothing.

area: schedule
cause: metric-is-scaled
operator: -
fix: unscaled | loss.item() | divide
shows: other result
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
way = torch.randn(8, 1)
for step in range(16):
    x = torch.randn(256, 8)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(x).float(), x @ way)
    scaled = scaler.scale(loss)
    scaled.backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step(scaled.item())  # broken here
    scheduler.step(loss.item())  # mended
print(json.dumps({"loss": loss.item(), "error": abs(optimizer.param_groups[0]["lr"] - 0.05) / 0.05}))
