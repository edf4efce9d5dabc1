"""Float16 weights are updated by hand; the rate times the gradient is too small for their digits.

area: optimizers
cause: weights-too-coarse
operator: -
fix: float32
shows: weights do not move
source: pytorch/pytorch#120376; the manual mixed precision of the second seed
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 16, bias=False)
nn.init.uniform_(model.weight, 0.5, 1.0)
model = model.half()  # broken
before = model.weight.detach().float().clone()
for step in range(10):
    x = torch.randn(32, 16)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = (model(x).float() - x).square().mean()
    (loss * 1024).backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 1e-4 * (p.grad / 1024)  # here
            p.grad = None
moved = (model.weight.detach().float() - before).abs().mean().item()
print(json.dumps({"loss": loss.item(), "moved": moved / 1e-4}))
