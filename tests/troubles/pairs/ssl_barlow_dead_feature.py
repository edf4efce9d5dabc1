"""Features are divided by their deviation over the batch, and one of them is always 0 behind a ReLU.

area: self-supervision
cause: division-by-zero
operator: div
fix: + eps | epsilon | clamp | where(
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(12, 24), nn.ReLU())
with torch.no_grad():
    encoder[0].bias[5] = -100.0
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)


def standard(z):
    z = z.float()
    deviation = z.std(0).detach()
    return (z - z.mean(0)) / deviation  # broken here
    return (z - z.mean(0)) / (deviation + 1e-5)  # mended


for step in range(3):
    x = torch.randn(16, 12)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        a, b = encoder(x + 0.1 * torch.randn_like(x)), encoder(x + 0.1 * torch.randn_like(x))
    c = standard(a).T @ standard(b) / 16
    loss = (c - torch.eye(24)).square().sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
