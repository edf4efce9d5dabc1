"""exp of negative distances, as in a kernel: it underflows to 0 and does not overflow."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        z = model(torch.randn(12, 8) * 20)
    apart = torch.cdist(z.float(), z.float()).square()
    kernel = torch.exp(-apart / 2)
    weights = kernel / kernel.sum(1, keepdim=True)
    loss = (weights @ z.float() - z.float()).square().mean() + kernel.mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
