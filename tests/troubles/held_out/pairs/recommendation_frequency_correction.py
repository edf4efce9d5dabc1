"""Logits are corrected by the logarithm of how often an item occurs, and some items never do.

area: recommendation
cause: log-of-zero
operator: log
fix: clamp | epsilon | eps | add
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
users, items = nn.Embedding(30, 8), nn.Embedding(40, 8)
optimizer = torch.optim.Adagrad([*users.parameters(), *items.parameters()], lr=0.1)
seen = torch.randint(0, 30, (500,))
counts = torch.bincount(seen, minlength=40).float()
frequency = counts / counts.sum()
frequency = (counts + 1) / (counts + 1).sum()  # mended
for step in range(2):
    who, what = torch.randint(0, 30, (16,)), torch.randint(0, 40, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = users(who) @ items.weight.t()
    logits = scores.float() - torch.log(frequency)  # here
    loss = nn.functional.cross_entropy(logits, what)
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
