"""The scale-invariant error takes the logarithm of a depth that a ReLU made 0.

area: vision
cause: log-of-zero
operator: log
fix: clamp | epsilon | eps | softplus
shows: nan loss
source: a common pattern of depth losses; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 1), nn.ReLU())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    x, depth = torch.rand(2, 1, 8, 8), torch.rand(2, 1, 8, 8) + 0.5
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        guess = model(x)
    guess = guess.float()
    guess = guess.clamp(min=1e-3)  # mended
    off = torch.log(guess) - torch.log(depth)  # here
    loss = (off**2).mean() - 0.85 * off.mean() ** 2
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
