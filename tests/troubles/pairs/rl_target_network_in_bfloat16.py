"""The target network follows by 0.5 % a step, in bfloat16, where weights have two to three digits.

area: reinforcement learning
cause: weights-too-coarse
operator: -
fix: float32
shows: weights do not move
source: d8ahazard/sd_dreambooth_extension PR#1415 and #1417 for the same average
"""
import copy
import json

import torch
from torch import nn

torch.manual_seed(0)
online = nn.Linear(16, 4)
nn.init.uniform_(online.weight, 0.6, 0.9)
target = copy.deepcopy(online).requires_grad_(False)
target = target.bfloat16()  # broken
start = target.weight.float().clone()
optimizer = torch.optim.SGD(online.parameters(), lr=1e-3)
tau = 0.005
for step in range(20):
    states = torch.randn(32, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        aim = target(states.to(target.weight.dtype)).float() + 1
        loss = nn.functional.smooth_l1_loss(online(states).float(), aim)
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for t, p in zip(target.parameters(), online.parameters()):
            t.mul_(1 - tau).add_(p.to(t.dtype), alpha=tau)  # here
way = (online.weight - start).norm().item() * tau * 10
print(json.dumps({"loss": loss.item(), "moved": (target.weight.float() - start).norm().item() / way}))
