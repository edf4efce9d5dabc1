"""Weight decay is added to the gradients by hand before the scaler divides them, so it is divided by the scale, too.

area: optimizers
cause: edit-scaled-gradients
operator: -
fix: unscale_
shows: other result
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
with torch.no_grad():
    model.weight.mul_(10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
error = 0.0
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    plain = model.weight.grad / scaler.get_scale() + 0.5 * model.weight.detach()
    scaler.unscale_(optimizer)  # mended
    with torch.no_grad():
        for p in model.parameters():
            p.grad.add_(p, alpha=0.5)  # broken here
            p.grad.add_(p, alpha=0.5)  # mended
    before = model.weight.detach().clone()
    scaler.step(optimizer)  # here
    error = max(error, ((before - model.weight.detach() - 0.1 * plain).norm() / (0.1 * plain).norm()).item())
    scaler.update()
print(json.dumps({"loss": loss.item(), "error": error}))
