"""Scores of several heads by einsum, without the division by the root of the width, in float16.

area: language
cause: product-overflow
operator: einsum | bmm | matmul
fix: bfloat16 | smaller | float()
shows: nan loss
source: huggingface/transformers#4586
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
embed, query, key, head = nn.Embedding(20, 32), nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 20)
optimizer = torch.optim.SGD([*embed.parameters(), *query.parameters(), *key.parameters(), *head.parameters()], lr=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
factor = 600  # broken
factor = 1  # mended
with torch.no_grad():
    query.weight.mul_(factor)
    key.weight.mul_(factor)
for step in range(2):
    tokens = torch.randint(0, 20, (2, 7))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        x = embed(tokens)
        q, k = query(x).view(2, 7, 4, 8), key(x).view(2, 7, 4, 8)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k)  # here
        mixed = torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores, -1), x.view(2, 7, 4, 8).to(scores.dtype))
        loss = nn.functional.cross_entropy(head(mixed.reshape(2, 7, 32)).flatten(0, 1).float(), tokens.flatten())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
