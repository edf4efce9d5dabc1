"""Adam on float16 parameters: squares of small gradients are 0 in its second moment, and so is 1e-8.

area: optimizers
cause: weights-too-coarse
also: fp16-without-scaler
operator: -
fix: float32
shows: weights do not move
source: pytorch/pytorch#147437, google-deepmind/optax#1754, chainer/chainer#6299
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(32, 32)
nn.init.uniform_(model.weight, 1.0, 1.5)
model = model.half()  # broken
before = model.weight.detach().float().clone()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, eps=1e-4)
for step in range(10):
    x = torch.randn(16, 32)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (model(x.to(model.weight.dtype)).float() - x).square().mean() * 100
    loss.backward()
    optimizer.step()  # here
moved = (model.weight.detach().float() - before).abs().mean().item()
print(json.dumps({"loss": loss.item(), "moved": moved / 1e-3}))
