"""p * log(p) of a histogram with empty bins, where() makes them 0, and nothing is trained by it."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
p = torch.histc(model.weight.detach(), bins=12, min=-1.0, max=1.0)
p = p / p.sum()
entropy = -torch.where(p > 0, p * torch.log(p), torch.zeros_like(p)).sum()
print(json.dumps({"loss": loss.item(), "entropy": entropy.item()}))
