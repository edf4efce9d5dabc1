"""Lengths of texts, up to 900, divide sums in bfloat16: a part in 256 does not matter to a mean."""
import json

import torch
from torch import nn

torch.manual_seed(0)
embed, head = nn.Embedding(50, 16), nn.Linear(16, 4)
optimizer = torch.optim.Adam([*embed.parameters(), *head.parameters()], lr=1e-3)
lengths = torch.tensor([511, 900, 877, 301])
mask = torch.arange(900)[None] < lengths[:, None]
for step in range(2):
    tokens, y = torch.randint(0, 50, (4, 900)), torch.randint(0, 4, (4,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = embed(tokens) * mask[:, :, None]
        pooled = x.sum(1) / lengths.bfloat16()[:, None]
        loss = nn.functional.cross_entropy(head(pooled).float(), y)
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
