"""A batch in which every label is ignored: the mean over no token is nan.

area: language
cause: mean-of-nothing
operator: cross_entropy | nll_loss | div | mean
fix: ignore | empty | at least one
shows: nan loss
source: pytorch/pytorch#70348, #116349; OpenRLHF/OpenRLHF PR#583
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(30, 16), nn.Linear(16, 30))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
total = 0.0
for step in range(3):
    tokens = torch.randint(0, 30, (4, 9))
    labels = tokens.clone()
    labels[:, :4] = -100
    if step == 1:
        labels[:] = -100  # the answers were cut off
    if (labels == -100).all():  # mended
        continue  # mended
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())  # here
    total += loss.item()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": total}))
