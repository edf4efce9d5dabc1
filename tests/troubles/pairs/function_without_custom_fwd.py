"""A custom autograd Function multiplies in float32 what autocast hands to it in float16: its backward meets two dtypes.

area: custom function
cause: function-without-custom-fwd
operator: -
fix: custom_fwd
shows: error
source: pytorch/pytorch#42358, #38487
"""
import json

import torch
from torch import nn
from torch.amp import custom_bwd, custom_fwd


class Scaled(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # mended
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x.mm(weight)

    @staticmethod
    @custom_bwd(device_type="cpu")  # mended
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad.mm(weight.t()), x.t().mm(grad)  # here


torch.manual_seed(0)
first, weight = nn.Linear(6, 6), nn.Parameter(torch.randn(6, 3))
optimizer = torch.optim.SGD([*first.parameters(), weight], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = Scaled.apply(first(torch.randn(8, 6)), weight).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
