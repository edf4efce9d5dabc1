"""A layer norm by hand divides by the root of 0 + 1e-12, which float16 rounds to 0, in rows of padding.

area: language
cause: epsilon-too-small
also: division-by-zero
operator: div
fix: eps | 1e- | float32 | layer_norm | larger
shows: nan loss
source: pytorch/pytorch#41527, tensorflow/tensorflow PR#24979
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
embed, head = nn.Embedding(20, 16, padding_idx=0), nn.Linear(16, 20)
optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    tokens = torch.randint(1, 20, (4, 6))
    tokens[:, 4:] = 0
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        x = embed(tokens).half()
        spread = x - x.mean(-1, keepdim=True)
        variance = (spread * spread).mean(-1, keepdim=True)
        eps = 1e-12  # broken
        eps = 1e-3  # mended
        normal = spread / torch.sqrt(variance + eps)  # here
        loss = nn.functional.cross_entropy(head(normal).float().flatten(0, 1), tokens.flatten())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
