"""Scans of 16 bits a pixel are converted to float16 before they are normalised; values above 65504 become infinite.

area: vision
cause: cast-overflow
operator: cast
fix: can hold | float()
shows: nan loss
source: aqlaboratory/openfold PR#222 converts such regions back
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
scans = torch.randint(0, 2**16, (8, 1, 16, 16))
scans[:, :, 4:8, 4:8] = 65535
labels = torch.randint(0, 2, (8,))
images = scans.half()  # broken here
images = scans.float()  # mended
images = (images - 32768.0) / 32768.0
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(images.float()), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
