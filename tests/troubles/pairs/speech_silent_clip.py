"""Recordings are normalised by their deviation, and one is silent.

area: speech
cause: division-by-zero
operator: div
fix: epsilon | + eps | clamp | where(
shows: nan loss
advise: not finite in float32 either
source: NVIDIA/waveglow#103 and #123
"""
import json

import torch
from torch import nn


def normalise(waves):
    centred = waves - waves.mean(1, keepdim=True)
    return centred / centred.std(1, keepdim=True)  # broken here
    return centred / (centred.std(1, keepdim=True) + 1e-5)  # mended


torch.manual_seed(0)
model = nn.Sequential(nn.Conv1d(1, 8, 9, stride=4), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    waves = torch.randn(4, 200)
    waves[1] = 0.25
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(normalise(waves)[:, None]).float(), torch.tensor([0, 1, 0, 1]))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
