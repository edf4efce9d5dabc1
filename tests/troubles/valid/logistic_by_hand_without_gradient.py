"""1 / (1 + exp(-x)) under no_grad: where exp overflows, the quotient is rightly 0."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
with torch.no_grad():
    with torch.autocast("cpu", dtype=torch.float16):
        x = model(torch.randn(16, 8) * 1000).float()
    p = 1 / (1 + torch.exp(-x))
print(json.dumps({"loss": p.mean().item()}))
