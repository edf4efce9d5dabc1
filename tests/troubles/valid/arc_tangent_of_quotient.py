"""The arc tangent of y / 0, which is a right angle; 0 / 0 is left out."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
    d = torch.relu(model(torch.randn(16, 8)).float())
d[3] = torch.tensor([1.0, 0.0])
angle = torch.atan(d[:, 0] / d[:, 1])
angle = angle[angle.isfinite()]
print(json.dumps({"loss": angle.mean().item()}))
