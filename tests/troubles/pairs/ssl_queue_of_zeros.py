"""The queue of negatives begins with zeros, and its rows are divided by their norm.

area: self-supervision
cause: division-by-zero
operator: div
fix: normalize | epsilon | + eps | clamp | where(
shows: nan loss
advise: not finite in float32 either
source: HKUDS/LightRAG PR#3421 for the same division
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Linear(16, 8)
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
queue, at = torch.zeros(32, 8), 0
for step in range(3):
    x = torch.randn(8, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        q = nn.functional.normalize(encoder(x).float(), dim=1)
        k = nn.functional.normalize(encoder(x + 0.1).float(), dim=1).detach()
        negatives = queue / queue.norm(dim=1, keepdim=True)  # broken here
        negatives = nn.functional.normalize(queue, dim=1)  # mended
        logits = torch.cat([(q * k).sum(1, keepdim=True), (q @ negatives.T).float()], 1) / 0.2
        loss = nn.functional.cross_entropy(logits, torch.zeros(8, dtype=torch.long))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    queue[at:at + 8], at = k, (at + 8) % 32
print(json.dumps({"loss": loss.item()}))
