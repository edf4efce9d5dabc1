"""The decay of 0.9999 is kept as a bfloat16 tensor, where it is 1, so the average never changes.

area: ema
cause: rate-too-coarse
operator: -
fix: float32
shows: weights do not move
source: lucidrains/ema-pytorch PR#18 ("is bfloat16's precision enough for common EMA coefficients?")
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 16)
average = [p.detach().clone() for p in model.parameters()]
start = [a.clone() for a in average]
decay = torch.tensor(0.9999, dtype=torch.bfloat16)  # broken here
decay = torch.tensor(0.9999)  # mended
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    x = torch.randn(16, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (model(x).float() - x.roll(1, 1)).square().mean()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for a, p in zip(average, model.parameters()):
            a.add_((1 - decay) * (p - a))  # here
moved = sum((a - s).norm().item() for a, s in zip(average, start))
way = sum((p.detach() - s).norm().item() for p, s in zip(model.parameters(), start)) * 1e-4 * 5
print(json.dumps({"loss": loss.item(), "moved": moved / way}))
