"""Depth is normalised by its median and spread in float16, and a flat depth map has a spread of 0.

area: vision
cause: division-by-zero
operator: div
fix: epsilon | + eps | clamp | where(
shows: nan loss
source: scale-and-shift-invariant depth losses; LinShan-Bin/OccNeRF#5
"""
import json

import torch
from torch import nn


class ShiftInvariantLoss(nn.Module):
    def normal(self, depth):
        flat = depth.flatten(1)
        middle = flat.median(1, keepdim=True).values
        spread = (flat - middle).abs().mean(1, keepdim=True)
        return (flat - middle) / spread  # broken here
        return (flat - middle) / (spread + 1e-4)  # mended

    def forward(self, guess, truth):
        return (self.normal(guess) - self.normal(truth)).abs().mean()


torch.manual_seed(0)
model, criterion = nn.Conv2d(3, 1, 3, padding=1), ShiftInvariantLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    images, depth = torch.rand(3, 3, 6, 6), torch.rand(3, 1, 6, 6)
    depth[2] = 0.5
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        guess = model(images)
    loss = criterion(guess.float(), depth)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
