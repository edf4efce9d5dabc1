"""A custom Function's backward divides by the norm of its input, and a padded row is 0.

area: custom function
cause: division-by-zero
operator: div
fix: normalize | epsilon | + eps | clamp | where(
shows: all steps skipped
source: pytorch/pytorch#2421, tenstorrent/tt-metal#55585
"""
import json

import torch
from torch import nn


class Length(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        length = x.norm(dim=1, keepdim=True)
        ctx.save_for_backward(x, length)
        return length

    @staticmethod
    def backward(ctx, grad):
        x, length = ctx.saved_tensors
        return grad * x / length  # broken here
        return grad * x / (length + 1e-6)  # mended


torch.manual_seed(0)
layer = nn.Linear(6, 4, bias=False)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
skipped = 0
for step in range(3):
    x = torch.randn(8, 6)
    x[6:] = 0.0
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        z = layer(x)
    loss = Length.apply(z.float()).mean()
    scaler.scale(loss).backward()
    skipped += not layer.weight.grad.isfinite().all().item()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "skipped": skipped, "steps": 3}))
