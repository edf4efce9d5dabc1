"""A quantiser divides by the largest weight of each row, and one row was pruned to 0.

area: custom function
cause: division-by-zero
operator: div
fix: epsilon | normalize | + eps | clamp | where(
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn


class Quantise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w):
        scale = w.abs().amax(1, keepdim=True) / 127
        return torch.round(w / scale) * scale  # broken here
        return torch.round(w / (scale + 1e-12)) * scale  # mended

    @staticmethod
    def backward(ctx, grad):
        return grad


torch.manual_seed(0)
weight, head = nn.Parameter(torch.randn(16, 8)), nn.Linear(16, 2)
with torch.no_grad():
    weight[3] = 0.0
optimizer = torch.optim.SGD([weight, *head.parameters()], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    x, y = torch.randn(12, 8), torch.randint(0, 2, (12,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(head(nn.functional.linear(x, Quantise.apply(weight))).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
