"""Attention of a sentence that is all padding: every score is -inf, and the softmax of such a row is nan.

area: language
cause: row-fully-masked
operator: softmax | log_softmax
fix: unmasked value
shows: nan loss
advise: not finite in float32 either
source: pytorch/pytorch#41508, PR#42323
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
embed, mix, head = nn.Embedding(30, 16), nn.Linear(16, 16), nn.Linear(16, 30)
model = nn.ModuleList([embed, mix, head])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
tokens = torch.randint(1, 30, (4, 5))
tokens[2] = 0
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        x = embed(tokens)
        scores = mix(x) @ x.transpose(1, 2)
        padding = (tokens == 0)[:, None, :].expand_as(scores)
        padding = padding & ~padding.all(-1, keepdim=True)  # mended
        scores = scores.masked_fill(padding, float("-inf"))
        weights = torch.softmax(scores, dim=-1)  # here
        loss = nn.functional.cross_entropy(head(weights @ x).flatten(0, 1).float(), tokens.flatten())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
