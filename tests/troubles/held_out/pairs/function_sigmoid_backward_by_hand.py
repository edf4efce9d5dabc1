"""The backward of a gate computes exp(-x) of float16 inputs.

area: custom function
cause: exp-overflow
operator: exp
fix: sigmoid | clamp | max | float32
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        e = torch.exp(-x)  # broken here
        s = 1 / (1 + e)  # broken
        slope = s + x * e * s * s  # broken
        s = torch.sigmoid(x)  # mended
        slope = s + x * s * (1 - s)  # mended
        return grad * slope


model, head = nn.Linear(8, 16), nn.Linear(16, 2)
optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for step in range(2):
    x, y = torch.randn(16, 8) * 30, torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(head(Gate.apply(model(x).half())).float(), y)
    scaler.scale(loss).backward()
    bad = model.weight.grad.isnan().any()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": float("nan") if bad else loss.item()}))
