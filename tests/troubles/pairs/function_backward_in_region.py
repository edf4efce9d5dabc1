"""backward() stands inside the autocast region, indented one step too far.

area: custom function
cause: backward-under-autocast
operator: -
fix: end the
shows: nothing
source: pytorch/pytorch#120930; the notes of torch.amp advise against it
"""
import json

import torch
from torch import nn


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * s * (1 + x * (1 - s))


torch.manual_seed(0)
first, second = nn.Linear(8, 16), nn.Linear(16, 2)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        out = second(Swish.apply(first(torch.randn(16, 8))))
        loss = nn.functional.cross_entropy(out.float(), torch.arange(16) % 2)
        scaler.scale(loss).backward()  # broken here
    scaler.scale(loss).backward()  # mended
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
