"""Only the last micro-batch's loss is scaled; the others are added unscaled, and vanish beside it.

area: accumulation
cause: mixed-scales
operator: -
fix: scaler.scale(loss).backward()
shows: other result
source: huggingface/transformers#23905, huggingface/accelerate#641
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
    right += torch.autograd.grad(nn.functional.cross_entropy(model(x), y) / 4, model.weight)[0]
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y) / 4
    if i % 4 == 3:
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # here
        error = max(error, ((model.weight.grad - right).norm() / right.norm()).item())
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        right.zero_()
    else:
        loss.backward()  # broken here
        scaler.scale(loss).backward()  # mended
print(json.dumps({"loss": loss.item(), "error": error}))
