"""A row without any key has a softmax of nan, which nan_to_num makes 0; the mask's gradient is 0 there."""
import json

import torch
from torch import nn

torch.manual_seed(0)
embed, head = nn.Embedding(20, 16), nn.Linear(16, 20)
optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
tokens = torch.randint(1, 20, (3, 5))
tokens[1] = 0
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        x = embed(tokens)
        scores = torch.bmm(x, x.transpose(1, 2)).float().masked_fill((tokens == 0)[:, None, :], float("-inf"))
        weights = torch.nan_to_num(torch.softmax(scores, -1))
        loss = nn.functional.cross_entropy(head(weights @ x).flatten(0, 1).float(), tokens.flatten())
    scaler.scale(loss).backward()
    if not all(p.grad.isfinite().all() for p in embed.parameters()):
        raise RuntimeError("a gradient is not finite")
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
