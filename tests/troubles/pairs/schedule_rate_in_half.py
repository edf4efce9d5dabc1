"""The learning rate is kept in a float16 tensor, where 2e-8 is 0.

area: schedule
cause: rate-too-coarse
operator: -
fix: float32
shows: weights do not move
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
kind = torch.float16  # broken
kind = torch.float32  # mended
rates = torch.linspace(0, 1e-7, 5).to(kind) * 0.2  # here
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
before = model.weight.detach().double().clone()
for step in range(5):
    x, y = torch.randn(16, 8) * 1e6, torch.randint(0, 2, (16,))
    optimizer.param_groups[0]["lr"] = rates[step].item()
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x / 1e6).float(), y) * 1e4
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "moved": (model.weight.detach().double() - before).norm().item() / 1e-5}))
