"""The smallest probability of an action is kept at 1e-11, which float16 rounds to 0, and its logarithm is taken.

area: reinforcement learning
cause: epsilon-too-small
also: log-of-zero
operator: log
fix: 1e- | clamp | float32 | log_softmax | larger
shows: nan loss
source: AechPro/rlgym-ppo#16
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Linear(8, 6)
optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for step in range(2):
    states = torch.randn(16, 8) * 20
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = policy(states)
    probabilities = torch.softmax(logits, -1).half()  # broken
    probabilities = torch.softmax(logits.float(), -1)  # mended
    probabilities = probabilities.clamp(min=1e-11)  # broken
    probabilities = probabilities.clamp(min=1e-6)  # mended
    entropy = -(probabilities * torch.log(probabilities)).sum(-1)  # here
    loss = -entropy.float().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
