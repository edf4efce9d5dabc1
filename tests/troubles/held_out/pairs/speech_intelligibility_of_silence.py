"""The length of a silent frame is a root of 0, and the epsilon is added behind it.

area: speech
cause: norm-by-hand
also: root-at-zero
operator: sqrt | pow
fix: under the root | vector_norm | eps
shows: nan loss
source: mpariente/pytorch_stoi PR#14
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(32, 32)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
nn.init.zeros_(model.bias)
for step in range(2):
    clean = torch.randn(4, 10, 32)
    noisy = clean + 0.1 * torch.randn(4, 10, 32)
    noisy[:, 7:] = 0
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        guess = model(noisy).float()
    length = torch.sqrt(torch.sum(guess**2, -1, keepdim=True)) + 1e-8  # broken here
    length = torch.sqrt(torch.sum(guess**2, -1, keepdim=True) + 1e-8)  # mended
    target = nn.functional.normalize(clean, dim=-1)
    loss = 1 - (guess / length * target).sum(-1).mean()
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item() + model.weight.sum().item()}))
