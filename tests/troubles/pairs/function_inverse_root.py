"""A custom Function for x ** -0.5 keeps its result and multiplies by its cube in backward, which is infinite in float16.

area: custom function
cause: power-overflow
operator: pow | mul
fix: float() | bfloat16 | float32
shows: all steps skipped
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn


class InverseRoot(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x.rsqrt()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        return -0.5 * grad * out**3  # broken here
        return (-0.5 * grad.float() * out.float() ** 3).to(grad.dtype)  # mended


torch.manual_seed(0)
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
skipped = 0
for step in range(4):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        power = torch.relu(model(x)) * 1e-4 + 5e-4
    loss = (InverseRoot.apply(power).float() * 1e-3).mean()
    scaler.scale(loss).backward()
    scale = scaler.get_scale()
    scaler.step(optimizer)
    skipped += any(not p.grad.isfinite().all() for p in model.parameters())
    scaler.update(scale)
print(json.dumps({"loss": loss.item(), "skipped": skipped, "steps": 4}))
