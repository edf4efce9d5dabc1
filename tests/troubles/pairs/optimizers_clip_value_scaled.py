"""Gradients are clipped by value while they are scaled.

area: optimizers
cause: clip-scaled-gradients
operator: -
fix: unscale_
shows: weights do not move
source: Lightning-AI/pytorch-lightning#9694
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2))
sgd = torch.optim.SGD(net.parameters(), lr=0.1)
amp = torch.amp.GradScaler("cpu", init_scale=8192.0)
before = net[3].weight.detach().clone()
losses = []
while len(losses) < 4:
    sgd.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(torch.randn(16, 2, 8)).float(), torch.arange(16) % 2)
    amp.scale(loss).backward()
    amp.unscale_(sgd)  # mended
    nn.utils.clip_grad_value_(net.parameters(), 0.01)  # here
    amp.step(sgd)
    amp.update()
    losses.append(loss.item())
print(json.dumps({"loss": losses[-1], "moved": (net[3].weight.detach() - before).norm().item() / 0.01}))
