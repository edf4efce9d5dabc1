"""The inner step of meta-learning takes gradients of the scaled loss from autograd.grad and uses them as they are.

area: optimizers
cause: edit-scaled-gradients
also: penalty-of-scaled | step-on-scaled-gradients | no-gradients
operator: -
fix: get_scale | unscale_ | divide
shows: other result
source: davda54/sam#55 and F-SAM#2 for steps of one's own
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
far = 0.0
for step in range(3):
    x, y = torch.randn(16, 8), torch.randn(16, 1)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        inner = (nn.functional.linear(x[:8], model.weight).float() - y[:8]).square().mean()
    grad = torch.autograd.grad(scaler.scale(inner), model.weight, create_graph=True)[0]
    grad = grad / scaler.get_scale()  # mended
    fast = model.weight - 0.05 * grad  # here
    far = max(far, (fast - model.weight).norm().item())
    with torch.autocast("cpu", dtype=torch.float16):
        loss = (nn.functional.linear(x[8:], fast).float() - y[8:]).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "error": float(far > 2.0)}))
