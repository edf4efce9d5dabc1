"""The least loss begins as a float16 infinity, and an early stop counts iterations without a better one."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
least, waited = torch.full((), float("inf"), dtype=torch.float16), 0
for step in range(6):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    now = loss.detach().half()
    waited = 0 if now < least else waited + 1
    least = torch.minimum(least, now)
print(json.dumps({"loss": loss.item(), "least": least.item()}))
