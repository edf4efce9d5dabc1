"""Spectral normalisation under autocast: its power iteration divides by norms."""
import json

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

torch.manual_seed(0)
critic = nn.Sequential(spectral_norm(nn.Linear(8, 16)), nn.LeakyReLU(), spectral_norm(nn.Linear(16, 1)))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = torch.relu(1 - critic(torch.randn(16, 8)).float()).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
