"""The smallest float16 number stands for a masked place in each of three masks, whose sum is minus infinity; rows of padding have no other place.

area: language
cause: row-fully-masked
also: mask-beyond-half | cast-overflow
operator: softmax
fix: finfo | mask | row | visible | nan_to_num | where
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
embed, head = nn.Embedding(20, 16), nn.Linear(16, 20)
optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
low = torch.finfo(torch.float16).min
causal = torch.full((6, 6), low).triu(1)
for step in range(2):
    tokens = torch.randint(1, 20, (3, 6))
    tokens[1, :2] = 0
    keys = torch.zeros(3, 1, 6).masked_fill((tokens == 0)[:, None, :], low)
    queries = torch.zeros(3, 6, 1).masked_fill((tokens == 0)[:, :, None], low)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        x = embed(tokens)
        scores = torch.bmm(x, x.transpose(1, 2)) / 4
        mask = (causal + keys + queries).half()  # broken
        mask = (causal + keys + queries).clamp(min=low).half()  # mended
        attention = torch.softmax(scores + mask, -1)  # here
        loss = nn.functional.cross_entropy(head(attention @ x).float().flatten(0, 1), tokens.flatten())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
