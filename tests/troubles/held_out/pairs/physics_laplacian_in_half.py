"""The second derivative of a field is a difference of float16 values over the square of a small step.

area: physics
cause: difference-too-coarse
operator: -
fix: float32
shows: other result
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
n = 128
h = 2 / n
x = torch.linspace(-1, 1, n)
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
kind = torch.float16  # broken
kind = torch.float32  # mended
field = torch.sin(3 * x).to(kind)
bent = (field[2:] - 2 * field[1:-1] + field[:-2]) / h**2  # here
right = -9 * torch.sin(3 * x.double())[1:-1]
for step in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x[1:-1, None])[:, 0]
    loss = (out.float() - bent.float()).square().mean()
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item(), "error": ((bent.double() - right).norm() / right.norm()).item()}))
