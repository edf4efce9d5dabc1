"""Each iteration keeps 1 / scale as a number, and an update by hand multiplies by it."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    back = 1.0 / scaler.get_scale()
    with torch.no_grad():
        for p in model.parameters():
            p.sub_(0.3 * (p.grad * back))
            p.grad = None
print(json.dumps({"loss": loss.item()}))
