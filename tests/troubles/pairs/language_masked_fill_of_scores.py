"""Scores are float16, and -1e9 is filled in for padding; torch refuses, because float16 ends at -65504.

area: language
cause: mask-beyond-half
operator: masked_fill | softmax | cast
fix: finfo
shows: error
source: NVIDIA/tacotron2#18 ("value cannot be converted to type Half without overflow"), pytorch/pytorch PR#7382
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
embed, query, head = nn.Embedding(30, 16), nn.Linear(16, 16), nn.Linear(16, 30)
optimizer = torch.optim.AdamW([*embed.parameters(), *query.parameters(), *head.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
tokens = torch.randint(1, 30, (4, 5))
tokens[1, 3:] = 0
tokens[2] = 0
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        x = embed(tokens)
        scores = query(x) @ x.transpose(1, 2)
        scores = scores.masked_fill((tokens == 0)[:, None, :], -1e9)  # broken here
        scores = scores.masked_fill((tokens == 0)[:, None, :], torch.finfo(scores.dtype).min)  # mended
        weights = torch.softmax(scores, -1)
        loss = nn.functional.cross_entropy(head(weights @ x).flatten(0, 1).float(), tokens.flatten())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
if not loss.isfinite():
    raise RuntimeError("the loss is not finite")
print(json.dumps({"loss": loss.item()}))
