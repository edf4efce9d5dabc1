"""The loss of an epoch is added up in bfloat16 and stops growing at a few hundred.

area: vision
cause: sum-too-coarse
operator: -
fix: float32 | item()
shows: other result
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
total, exact = torch.zeros((), dtype=torch.bfloat16), 0.0  # broken
total, exact = torch.zeros(()), 0.0  # mended
for step in range(500):
    x, y = torch.randn(8, 8), torch.randint(0, 4, (8,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    loss.backward()
    optimizer.step()
    total += loss.detach()  # here
    exact += loss.detach().item()
print(json.dumps({"loss": loss.item(), "error": abs(total.item() - exact) / exact}))
