"""A custom activation multiplies exp(x) by a mask in backward; where exp overflowed, 0 times infinity is nan.

area: custom function
cause: exp-overflow
operator: exp
fix: clamp
shows: all steps skipped
source: nerfstudio-project/nerfstudio PR#104, ashawkey/torch-ngp#28
"""
import json

import torch
from torch import nn


class Density(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.exp(x.clamp(max=11.0))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * torch.exp(x) * (x < 11)  # broken here
        return grad * torch.exp(x.clamp(max=11.0)) * (x < 11)  # mended


torch.manual_seed(0)
model = nn.Linear(4, 8)
nn.init.constant_(model.bias, 9.0)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
skipped = 0
for step in range(4):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        raw = model(torch.randn(32, 4) * 6)
    loss = (1 - torch.exp(-Density.apply(raw).float() * 1e-4)).mean()
    scaler.scale(loss).backward()
    skipped += not model.weight.grad.isfinite().all().item()
    scaler.step(optimizer)
    scaler.update(1.0)
print(json.dumps({"loss": loss.item(), "skipped": skipped, "steps": 4}))
