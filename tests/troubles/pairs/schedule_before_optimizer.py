"""scheduler.step() comes before the optimizer's step, so the first learning rate is never used.

area: schedule
cause: scheduler-before-optimizer
operator: -
fix: after
shows: other result
source: pytorch/pytorch#44511, Lightning-AI/pytorch-lightning#5558
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
used = []
for epoch in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scheduler.step()  # broken here
    used.append(optimizer.param_groups[0]["lr"])
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()  # mended
print(json.dumps({"loss": loss.item(), "error": abs(used[0] - 0.1) / 0.1}))
