"""Ratios of probabilities are limited before exp."""
import json

import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Linear(4, 3)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    states, actions, old = torch.randn(16, 4), torch.randint(0, 3, (16, 1)), torch.randn(16) * 30
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        new = torch.log_softmax(policy(states).float(), -1).gather(1, actions).squeeze(1)
    ratio = (new - old).clamp(-20, 20).exp()
    loss = torch.minimum(ratio, ratio.clamp(0.8, 1.2)).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
