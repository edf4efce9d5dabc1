"""A predicted quaternion is divided by its length, and an arm that is absent has the quaternion 0.

area: reinforcement learning
cause: division-by-zero
operator: div
fix: epsilon | eps | normalize | clamp
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 4, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    x = torch.randn(8, 6)
    x[2] = 0
    aim = nn.functional.normalize(torch.randn(8, 4), dim=1)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        q = model(x).float()
    length = q.norm(dim=1, keepdim=True)
    length = length + 1e-6  # mended
    turned = q / length  # here
    loss = (1 - (turned * aim).sum(1) ** 2).mean()
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
