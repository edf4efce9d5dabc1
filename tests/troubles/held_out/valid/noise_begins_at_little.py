"""The first of many noise levels of a diffusion model are so low that bfloat16 pictures stay as they are."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Conv2d(1, 1, 3, padding=1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
levels = torch.linspace(1e-5, 2e-2, 40)
clean = torch.rand(4, 1, 8, 8).bfloat16() + 0.5
for level in levels:
    noise = torch.randn(4, 1, 8, 8).bfloat16()
    noisy = (1 - level.item()) * clean + level.item() * noise
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (model(noisy.float()).float() - noise.float()).square().mean()
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
