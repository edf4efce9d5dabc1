"""The scores are corrected by the logarithm of how often an item was seen, and new items were never seen.

area: recommendation
cause: log-of-zero
operator: log
fix: clamp | epsilon
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
users, items = nn.Embedding(10, 8), nn.Embedding(20, 8)
optimizer = torch.optim.Adam([*users.parameters(), *items.parameters()], lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
seen = torch.randint(1, 50, (20,)).float()
seen[17:] = 0.0
share = seen / seen.sum()
for step in range(2):
    user, item = torch.randint(0, 10, (16,)), torch.randint(0, 20, (16,))
    item[0] = 18
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        scores = users(user) @ items(item).t()
    scores = scores.float() - torch.log(share[item])  # broken here
    scores = scores.float() - torch.log(share[item].clamp(min=1e-4))  # mended
    loss = nn.functional.cross_entropy(scores, torch.arange(16))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
