"""Item numbers travel in one float16 table with other features; above 2048 they come back as their neighbours.

area: recommendation
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
items = nn.Embedding(5000, 8)
head = nn.Linear(10, 1)
optimizer = torch.optim.SGD([*items.parameters(), *head.parameters()], lr=0.01)
numbers = torch.randint(3000, 5000, (64,))
others = torch.rand(64, 2)
kind = torch.float16  # broken
kind = torch.float32  # mended
table = torch.cat([numbers[:, None].to(kind), others.to(kind)], 1)  # here
back = table[:, 0].long().clamp(max=4999)
with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = head(torch.cat([items(back), table[:, 1:].float()], 1)).float().square().mean()
loss.backward()
optimizer.step()
print(json.dumps({"loss": loss.item(), "error": (back != numbers).float().mean().item()}))
