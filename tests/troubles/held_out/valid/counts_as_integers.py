"""Hits and totals are counted as integers, and become float16 only for the share that is shown."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hits, total = torch.zeros(4, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)
for step in range(30):
    x, y = torch.randn(200, 8), torch.randint(0, 4, (200,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
        loss = nn.functional.cross_entropy(out.float(), y)
    loss.backward()
    optimizer.step()
    total += torch.bincount(y, minlength=4)
    hits += torch.bincount(y[out.argmax(1) == y], minlength=4)
share = hits.half() / total.half()
print(json.dumps({"loss": loss.item(), "share": share.float().mean().item()}))
