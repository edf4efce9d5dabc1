"""A running average of squared gradients in float16 is 0 for small ones, and the update divides by its root.

area: ema
cause: division-by-zero
also: epsilon-too-small
operator: div | rsqrt
fix: epsilon | + eps | clamp | where(
shows: nan loss
source: google-deepmind/optax#1754, pytorch/pytorch#147437
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
kind = torch.float16  # broken
kind = torch.float32  # mended
squares = [torch.zeros_like(p, dtype=kind) for p in model.parameters()]
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x).float(), y) * 1e-3
    loss.backward()
    with torch.no_grad():
        for p, s in zip(model.parameters(), squares):
            s.mul_(0.99).add_(p.grad.to(kind) ** 2, alpha=0.01)
            p -= 1e-3 * p.grad / (s.sqrt() + 1e-8)  # here
            p.grad = None
print(json.dumps({"loss": loss.item()}))
