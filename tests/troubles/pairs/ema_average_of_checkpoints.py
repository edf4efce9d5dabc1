"""Sixty-four checkpoints are added up in bfloat16 before the sum is divided.

area: ema
cause: sum-too-coarse
operator: -
fix: float32
shows: other result
source: NVIDIA-NeMo/Automodel PR#2248 on averages in bfloat16
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 16)
nn.init.uniform_(model.weight, 0.5, 1.0)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
total = torch.zeros(16, 16, dtype=torch.bfloat16)  # broken
total = torch.zeros(16, 16)  # mended
exact = torch.zeros(16, 16, dtype=torch.float64)
for step in range(400):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.randn(4, 16)).float().square().mean()
    loss.backward()
    optimizer.step()
    total += model.weight.detach().to(total.dtype)  # here
    exact += model.weight.detach()
print(json.dumps({"loss": loss.item(), "error": ((total.double() - exact).norm() / exact.norm()).item()}))
