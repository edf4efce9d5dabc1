"""Sinkhorn's assignment takes exp(scores / 0.05) in float16, and normalises it afterwards.

area: self-supervision
cause: exp-overflow
operator: exp
fix: max | clamp
shows: nan loss
source: facebookresearch/swav#67, facebookresearch/dinov2 PR#583
"""
import json

import torch
from torch import nn


@torch.no_grad()
def sinkhorn(scores, epsilon=0.05, rounds=3):
    q = torch.exp(scores / epsilon).t()  # broken here
    q = torch.exp((scores.float() - scores.float().max()) / epsilon).t()  # mended
    q = q / q.sum()
    for _ in range(rounds):
        q = q / q.sum(1, keepdim=True) / q.shape[0]
        q = q / q.sum(0, keepdim=True) / q.shape[1]
    return (q * q.shape[1]).t()


torch.manual_seed(0)
encoder, prototypes = nn.Linear(16, 32), nn.Linear(32, 8, bias=False)
optimizer = torch.optim.SGD([*encoder.parameters(), *prototypes.parameters()], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    x = torch.randn(16, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        scores = prototypes(nn.functional.normalize(encoder(x), dim=1) * 6)
    aim = sinkhorn(scores).float()
    loss = -(aim * torch.log_softmax(scores.float() / 0.1, 1)).sum(1).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
