"""A recurrent cell by hand splits one product into gates; the product's input overflows float16, and the gates are looked at later.

area: language
cause: cast-overflow
also: product-overflow
operator: cast | linear | addmm | mm
fix: bfloat16 | smaller | float()
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
embed, gates, head = nn.Embedding(20, 16), nn.Linear(32, 64), nn.Linear(16, 20)
optimizer = torch.optim.SGD([*embed.parameters(), *gates.parameters(), *head.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
factor = 40000  # broken
factor = 1  # mended
with torch.no_grad():
    embed.weight.mul_(factor)
for step in range(2):
    tokens = torch.randint(0, 20, (4, 5))
    h = c = torch.zeros(4, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        for t in range(5):
            every = gates(torch.cat([embed(tokens[:, t]), h], 1))  # here
            i, f, g, o = every.chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.relu(g)
            h = torch.sigmoid(o) * (c - c.mean(1, keepdim=True))
        loss = nn.functional.cross_entropy(head(h).float(), tokens[:, 0])
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
