"""Positions are the running sum of a padding mask in bfloat16, and choose rows of a table.

area: language
cause: count-too-coarse
also: sum-too-coarse
operator: -
fix: float32 | long | int
shows: other result
source: tensorflow/tensorflow#115731 for the running sum
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
length = 600
words, places, head = nn.Embedding(50, 16), nn.Embedding(700, 16), nn.Linear(16, 50)
optimizer = torch.optim.SGD([*words.parameters(), *places.parameters(), *head.parameters()], lr=0.1)
tokens = torch.randint(1, 50, (2, length))
tokens[0, 500:] = 0
mask = tokens != 0
kind = torch.bfloat16  # broken
kind = torch.int64  # mended
positions = (torch.cumsum(mask.to(kind), 1) * mask.to(kind)).long()  # here
for step in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = words(tokens) + places(positions)
        loss = nn.functional.cross_entropy(head(x).float().flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
right = mask.long().cumsum(1) * mask
print(json.dumps({"loss": loss.item(), "error": (positions != right).float().mean().item()}))
