"""Features are normalised in float16, and their norm is beyond its range: all of them become 0.

area: vision
cause: norm-overflow
operator: norm | linalg_vector_norm | div
fix: float() | float32
shows: other result
source: pytorch/pytorch#44350 for mean and var
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 512)
with torch.no_grad():
    model.weight.mul_(8000)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    x = torch.randn(8, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        z = model(x)
    size = z.norm(dim=1, keepdim=True)  # broken here
    size = z.float().norm(dim=1, keepdim=True)  # mended
    unit = z / size
    right = nn.functional.normalize(z.detach().float(), dim=1)
    loss = nn.functional.cross_entropy((unit @ unit.t()).float() / 0.2, torch.arange(8))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "error": ((unit.detach().float() - right).norm() / right.norm()).item()}))
