"""A Function asks for float32 inputs and computes its forward again in float32: both passes have one precision."""
import json

import torch
from torch import nn

torch.manual_seed(0)
class Again(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.tanh(x @ weight.t())

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        x, weight = (t.detach().requires_grad_() for t in ctx.saved_tensors)
        with torch.enable_grad():
            out = torch.tanh(x @ weight.t())
        return torch.autograd.grad(out, (x, weight), grad)


first, weight, head = nn.Linear(8, 8), nn.Parameter(torch.randn(8, 8) / 3), nn.Linear(8, 2)
optimizer = torch.optim.SGD([*first.parameters(), weight, *head.parameters()], lr=0.1)
for step in range(3):
    x, y = torch.randn(16, 8), torch.arange(16) % 2
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(head(Again.apply(first(x), weight)).float(), y)
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
