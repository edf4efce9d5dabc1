"""Rewards of impossible plans are -inf, and the best of several plans is taken."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
with torch.no_grad():
    plans = torch.randn(6, 5, 4)
    with torch.autocast("cpu", dtype=torch.float16):
        reward = model(plans).float().squeeze(-1)
    reward[torch.rand(6, 5) > 0.8] = float("-inf")
    reward[2] = 0.5
    total = reward.sum(1)
    best = total.argmax()
print(json.dumps({"loss": total[best].item()}))
