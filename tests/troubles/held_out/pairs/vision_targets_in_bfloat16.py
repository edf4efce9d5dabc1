"""Boxes and class numbers of a detector travel in one bfloat16 tensor; 365 classes are more than it counts.

area: vision
cause: count-too-coarse
operator: -
fix: float32 | long | int
shows: other result
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
classes, head = 365, nn.Linear(16, 365)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)


def collate(samples, kind):
    rows = []
    for i, (label, box) in enumerate(samples):
        rows.append(torch.cat([torch.tensor([i]).to(kind), label.to(kind), box.to(kind)]))  # here
    return torch.stack(rows)


samples = [(torch.tensor([300 + i]), torch.rand(4)) for i in range(60)]
targets = collate(samples, torch.bfloat16)  # broken
targets = collate(samples, torch.float32)  # mended
labels = targets[:, 1].long().clamp(max=classes - 1)
for step in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(head(torch.randn(60, 16)).float(), labels)
    loss.backward()
    optimizer.step()
right = torch.cat([s[0] for s in samples])
print(json.dumps({"loss": loss.item(), "error": (labels != right).float().mean().item()}))
