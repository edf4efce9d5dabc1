"""The logarithm of an importance ratio is limited before its exponential, of stale tokens that are 300 away."""
import json

import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Linear(8, 12)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
for step in range(3):
    states, actions, advantage = torch.randn(16, 8), torch.randint(0, 12, (16,)), torch.randn(16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = policy(states)
    new = torch.log_softmax(logits.float(), -1).gather(1, actions[:, None])[:, 0]
    old = new.detach() + torch.randn(16) * 0.1
    old[2] -= 300
    ratio = (new - old).clamp(-20, 20).exp()
    loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).clamp(-10, 10).mean()
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
