"""A stale token has an infinite importance ratio, and the filter multiplies it by 0.

area: reinforcement learning
cause: exp-overflow
operator: exp
fix: clamp | where | max
shows: nan loss
source: OpenRLHF/OpenRLHF PR#1314
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Linear(8, 12)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
for step in range(2):
    states, actions, advantage = torch.randn(16, 8), torch.randint(0, 12, (16,)), torch.randn(16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = policy(states)
    new = torch.log_softmax(logits.float(), -1).gather(1, actions[:, None])[:, 0]
    rollout = new.detach().clone()
    rollout[3] -= 200
    ratio = torch.exp(new - rollout)  # here
    keep = (ratio > 0.5) & (ratio < 5.0)
    weighted = ratio * keep  # broken
    weighted = torch.where(keep, torch.exp((new - rollout).clamp(-20, 20)), 0.0)  # mended
    loss = -(weighted * advantage).mean()
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
