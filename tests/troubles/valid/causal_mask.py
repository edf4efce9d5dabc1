"""A causal mask of -inf, which leaves every row its own position."""
import json

import torch
from torch import nn

torch.manual_seed(0)
embed, mix, head = nn.Embedding(20, 16), nn.Linear(16, 16), nn.Linear(16, 20)
optimizer = torch.optim.AdamW([*embed.parameters(), *mix.parameters(), *head.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
mask = torch.triu(torch.full((6, 6), float("-inf")), diagonal=1)
for step in range(3):
    tokens = torch.randint(0, 20, (4, 6))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        x = embed(tokens)
        scores = mix(x) @ x.transpose(1, 2) / 4 + mask
        loss = nn.functional.cross_entropy(head(torch.softmax(scores, -1) @ x).flatten(0, 1).float(), tokens.flatten())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
