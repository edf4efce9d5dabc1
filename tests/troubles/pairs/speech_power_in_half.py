"""Samples of 16 bits are squared in float16 for the energy of a frame.

area: speech
cause: power-overflow
operator: square | pow | mul
fix: float() | bfloat16
shows: nan loss
source: LIHANG-HONG/birdclef2023-2nd-place-solution#2, Jiahao000/MFM#7
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(10, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
waves = (torch.randn(4, 10, 80) * 2000).round().half()
for step in range(3):
    energy = waves**2  # broken here
    energy = waves.float() ** 2  # mended
    energy = energy.float().mean(-1)
    features = energy / energy.sum(1, keepdim=True)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(features).float(), torch.tensor([0, 1, 2, 0]))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
