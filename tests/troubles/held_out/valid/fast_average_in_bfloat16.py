"""An average of bfloat16 weights goes a third of the way in each step."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 4)
average = [p.detach().clone().bfloat16() for p in model.parameters()]
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(20):
    x = torch.randn(16, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (model(x).float() - 1).square().mean()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for a, p in zip(average, model.parameters()):
            a.mul_(2 / 3).add_(p.to(a.dtype), alpha=1 / 3)
print(json.dumps({"loss": loss.item()}))
