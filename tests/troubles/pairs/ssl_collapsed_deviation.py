"""A regulariser takes the deviation of every feature, and one has collapsed to a constant: its gradient is nan.

area: self-supervision
cause: root-at-zero
operator: std | sqrt
fix: epsilon | eps | clamp
shows: all steps skipped
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Linear(8, 16)
with torch.no_grad():
    encoder.weight[3] = 0.0
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
skipped = 0
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        z = encoder(torch.randn(16, 8)).float()
    deviation = torch.sqrt(z.var(0))  # broken here
    deviation = torch.sqrt(z.var(0) + 1e-4)  # mended
    loss = torch.relu(1 - deviation).mean() + z.square().mean()
    scaler.scale(loss).backward()
    skipped += not encoder.weight.grad.isfinite().all().item()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "skipped": skipped, "steps": 3}))
