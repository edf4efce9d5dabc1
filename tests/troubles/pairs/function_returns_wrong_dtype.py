"""A custom Function computes a product by hand for memory, in the dtype of its input, under autocast; the weight is float32.

area: custom function
cause: function-without-custom-fwd
operator: -
fix: custom_fwd
shows: error
source: pytorch/pytorch#85504, #132715; NVIDIA/apex#798
"""
import json

import torch
from torch import nn
from torch.amp import custom_bwd, custom_fwd


class Project(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float16)  # mended
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.addmm(torch.zeros(weight.shape[0], dtype=x.dtype), x, weight.t())

    @staticmethod
    @custom_bwd(device_type="cpu")  # mended
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return torch.mm(grad, weight), torch.mm(grad.t(), x)  # here


torch.manual_seed(0)
first, weight = nn.Linear(6, 6), nn.Parameter(torch.randn(4, 6))
optimizer = torch.optim.SGD([*first.parameters(), weight], lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(Project.apply(first(torch.randn(8, 6)), weight).float(), torch.arange(8) % 4)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
