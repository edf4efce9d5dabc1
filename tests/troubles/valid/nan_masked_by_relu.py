"""The root's infinite gradient at 0 meets the zero of a ReLU, whose formula picks values and multiplies none."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Conv2d(3, 1, 3, padding=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        x = torch.relu(model(torch.randn(2, 3, 8, 8))).float()
    loss = torch.where(x > 0, torch.sqrt(x), torch.zeros_like(x)).mean()
    scaler.scale(loss).backward()
    if not model.weight.grad.isfinite().all():
        raise RuntimeError("a gradient is not finite")
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
