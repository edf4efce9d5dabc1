"""The learning rate is far too high; losses grow until they leave every range, and precision is not the cause.

area: schedule
cause: divergence
also: product-overflow | sum-overflow | power-overflow
operator: -
fix: lower the learning rate
shows: nan loss
source: Lightning-AI/pytorch-lightning#9799
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(64, 1)
rate = 0.5  # broken here
rate = 0.01  # mended
optimizer = torch.optim.SGD(model.parameters(), lr=rate)
scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
for step in range(25):
    x = torch.randn(16, 64)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(x)
        loss = nn.functional.mse_loss(out.float(), x.sum(1, keepdim=True))
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # here
    scaler.update()
print(json.dumps({"loss": loss.item()}))
