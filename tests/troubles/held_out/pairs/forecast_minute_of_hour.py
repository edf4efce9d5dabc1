"""Minutes of a week go through the data set's dtype, bfloat16, and their rest by 60 is taken.

area: forecasting
cause: count-too-coarse
operator: -
fix: long | float32 | int
shows: other result
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
minutes = torch.arange(0, 7 * 24 * 60, 7)
table = nn.Embedding(60, 8)
head = nn.Linear(8, 1)
optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
columns = torch.stack([minutes.bfloat16(), torch.rand(len(minutes)).bfloat16()], 1)  # broken here
columns = torch.stack([minutes.float(), torch.rand(len(minutes))], 1)  # mended
within = (columns[:, 0] % 60).long()
for step in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (head(table(within)).float() - columns[:, 1:].float()).square().mean()
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item(), "error": (within != minutes % 60).float().mean().item()}))
