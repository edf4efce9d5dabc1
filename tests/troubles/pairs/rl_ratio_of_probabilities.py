"""The ratio of new to old probabilities is exp of a difference that is large for actions that the policy now prefers.

area: reinforcement learning
cause: exp-overflow
operator: exp
fix: clamp
shows: nan loss
source: kscalelabs/minppo PR#19
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Linear(4, 3)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
old = torch.full((32,), -95.0)
old[4:] = -1.1
for step in range(3):
    states, actions, advantages = torch.randn(32, 4), torch.randint(0, 3, (32,)), -torch.ones(32)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        new = torch.log_softmax(policy(states).float(), -1).gather(1, actions[:, None]).squeeze(1)
        ratio = torch.exp(new - old)  # broken here
        ratio = torch.exp((new - old).clamp(max=5.0))  # mended
        loss = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
