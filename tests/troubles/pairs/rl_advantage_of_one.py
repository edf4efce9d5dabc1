"""Advantages are normalised by their deviation, and the last minibatch has one sample, whose deviation is nan.

area: reinforcement learning
cause: deviation-of-one
operator: std | var
fix: correction | at least two | unbiased
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Linear(4, 3)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
states, actions, returns = torch.randn(33, 4), torch.randint(0, 3, (33,)), torch.randn(33)
for start in range(0, 33, 8):
    s, a, r = states[start:start + 8], actions[start:start + 8], returns[start:start + 8]
    deviation = r.std()  # broken here
    deviation = r.std(correction=0)  # mended
    advantages = (r - r.mean()) / (deviation + 1e-8)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        chosen = torch.log_softmax(policy(s).float(), -1).gather(1, a[:, None]).squeeze(1)
        loss = -(chosen * advantages).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
