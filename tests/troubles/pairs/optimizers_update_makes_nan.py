"""A hand-written update divides by the norm of a gradient that is 0, and writes nan into the weights.

area: optimizers
cause: division-by-zero
operator: div
fix: normalize | epsilon | + eps | where( | clamp
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
nn.init.constant_(model[0].bias, -100.0)  # no unit is ever active
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            step_of = p.norm() * p.grad / p.grad.norm()  # broken here
            step_of = p.norm() * p.grad / (p.grad.norm() + 1e-6)  # mended
            p -= 0.01 * step_of
            p.grad = None
print(json.dumps({"loss": loss.item()}))
