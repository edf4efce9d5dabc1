"""Returns are hundreds, and the squared error of the value is taken in float16, which ends at 65504.

area: reinforcement learning
cause: power-overflow
operator: square | pow | mul
fix: float() | bfloat16
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 32), nn.Linear(32, 1)

    def forward(self, states):
        return self.head(torch.relu(self.body(states))).squeeze(1)


torch.manual_seed(0)
critic = Critic()
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
for step in range(3):
    states, returns = torch.randn(16, 4), torch.randn(16) * 300
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        value = critic(states)
    error = value - returns.to(value.dtype)
    loss = error.square().mean()  # broken here
    loss = error.float().square().mean()  # mended
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
