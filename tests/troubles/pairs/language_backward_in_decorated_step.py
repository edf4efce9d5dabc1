"""A whole training step is decorated with autocast, so backward and the optimizer run inside the region, too.

area: language
cause: backward-under-autocast
operator: -
fix: end the
shows: nothing
source: pytorch/pytorch#120930, Lightning-AI/pytorch-lightning#19267
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(30, 16), nn.Linear(16, 30))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


@torch.autocast("cpu", dtype=torch.bfloat16)
def forward(tokens):
    loss = nn.functional.cross_entropy(model(tokens).float(), tokens)
    loss.backward()  # broken here
    return loss


for step in range(3):
    optimizer.zero_grad()
    loss = forward(torch.randint(0, 30, (16,)))
    loss.backward()  # mended
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
