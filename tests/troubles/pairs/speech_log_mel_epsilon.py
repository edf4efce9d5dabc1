"""Log-mel features add 1e-10 to silence before the logarithm; in float16 that is 0.

area: speech
cause: epsilon-too-small
operator: log
fix: clamp | epsilon | eps | float()
shows: nan loss
source: NVIDIA/waveglow#103, LIHANG-HONG/birdclef2023-2nd-place-solution#2, kitzeslab/opensoundscape#794
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
power = torch.rand(6, 20).half()
power[2, 5:] = 0.0  # silence
for step in range(3):
    optimizer.zero_grad()
    mel = torch.log(power + 1e-10)  # broken here
    mel = torch.log(power.float() + 1e-10)  # mended
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(mel.float()).float(), torch.arange(6) % 5)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
