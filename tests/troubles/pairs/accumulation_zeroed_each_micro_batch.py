"""zero_grad() stands at the head of the loop, so only the last micro-batch's gradients are left for the step.

area: accumulation
cause: accumulation-lost
operator: -
fix: zero_grad
shows: other result
source: loops that were given accumulation later; huggingface/transformers#23905
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(12, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
right, error = torch.zeros(4, 12), 0.0
for i in range(8):
    x, y = torch.randn(8, 12), torch.randint(0, 4, (8,))
    optimizer.zero_grad()  # broken here
    right += torch.autograd.grad(nn.functional.cross_entropy(model(x), y) / 4, model.weight)[0]
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y) / 4
    scaler.scale(loss).backward()
    if (i + 1) % 4 == 0:
        scaler.unscale_(optimizer)
        error = max(error, ((model.weight.grad - right).norm() / right.norm()).item())
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()  # mended
        right.zero_()
print(json.dumps({"loss": loss.item(), "error": error}))
