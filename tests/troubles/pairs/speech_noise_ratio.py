"""The ratio of signal to noise in decibels, of a separation that is perfect in one channel.

area: speech
cause: log-of-zero
operator: log10
fix: clamp | epsilon
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn


def noise_ratio(guess, truth):
    noise = (guess - truth).square().sum(-1)
    return 10 * torch.log10(truth.square().sum(-1) / (noise + 1e-8)).mean() - 0.1 * torch.log10(noise).mean()  # broken here
    return 10 * torch.log10(truth.square().sum(-1) / (noise + 1e-8)).mean() - 0.1 * torch.log10(noise + 1e-8).mean()  # mended


torch.manual_seed(0)
model = nn.Conv1d(1, 2, 5, padding=2)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(3):
    mixed = torch.randn(2, 1, 60)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        guess = model(mixed).float()
    truth = torch.randn(2, 2, 60)
    truth[:, 0] = guess[:, 0].detach()
    loss = -noise_ratio(guess, truth)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
