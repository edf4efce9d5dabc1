"""-1e9 is filled into float32 scores, which can hold it."""
import json

import torch
from torch import nn

torch.manual_seed(0)
embed, head = nn.Embedding(20, 16), nn.Linear(16, 20)
optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
tokens = torch.randint(1, 20, (3, 5))
tokens[1, 2:] = 0
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        x = embed(tokens)
        scores = torch.bmm(x, x.transpose(1, 2))
    scores = scores.float()
    scores = scores.masked_fill((tokens == 0)[:, None, :], -1e9)
    loss = nn.functional.cross_entropy(head(torch.softmax(scores, -1) @ x.float()).flatten(0, 1), tokens.flatten())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
