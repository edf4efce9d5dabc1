"""The perplexity is exp of the summed loss, not of its mean: it is infinite in float32, too, and is used as the loss.

area: language
cause: exp-overflow
operator: exp
fix: clamp | max
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 50))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
for step in range(3):
    tokens = torch.randint(0, 50, (4, 17))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(tokens[:, :-1]).float()
        each = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
        loss = torch.exp(each.sum())  # broken here
        loss = torch.exp(each.mean())  # mended
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
