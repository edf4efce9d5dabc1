"""Sentences are averaged over their tokens; an empty one is the zero vector, and is divided by its norm.

area: language
cause: division-by-zero
operator: div
fix: normalize | epsilon | + eps | clamp | where(
shows: nan loss
source: HKUDS/LightRAG PR#3421, huggingface/sentence-transformers PR#4033
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.EmbeddingBag(40, 16, mode="sum", padding_idx=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
a, b = torch.randint(1, 40, (8, 5)), torch.randint(1, 40, (8, 5))
b[4] = 0
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        u, v = model(a), model(b)
    u = u / u.norm(dim=1, keepdim=True)
    v = v / v.norm(dim=1, keepdim=True)  # broken here
    v = nn.functional.normalize(v, dim=1)  # mended
    loss = (1 - (u * v).sum(1)).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
