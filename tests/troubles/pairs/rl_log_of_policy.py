"""The policy's probabilities are taken by softmax, and their logarithm afterwards: a probability that rounds to 0 has -inf.

area: reinforcement learning
cause: log-of-softmax
operator: log
fix: log_softmax | cross_entropy
shows: nan loss
advise: not finite in float32 either
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Linear(4, 3)
with torch.no_grad():
    policy.weight.mul_(40.0)  # a policy that is sure of itself
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
for step in range(3):
    states, actions, advantages = torch.randn(32, 4) * 3, torch.randint(0, 3, (32,)), torch.randn(32)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = policy(states)
        log_probs = torch.log(torch.softmax(logits, dim=-1))  # broken here
        log_probs = torch.log_softmax(logits.float(), dim=-1)  # mended
        chosen = log_probs.gather(1, actions[:, None]).squeeze(1)
        entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
        loss = -(chosen * advantages).mean() - 0.01 * entropy
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
