"""Scaled gradients of two copies of a model are averaged by hand, which leaves them scaled."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

copies = [model, nn.Linear(8, 2)]
copies[1].load_state_dict(model.state_dict())
for step in range(3):
    for one in copies:
        one.zero_grad()
        x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(one(x).float(), y)
        scaler.scale(loss).backward()
    with torch.no_grad():
        for p, q in zip(*(one.parameters() for one in copies)):
            p.grad.add_(q.grad).div_(2)
    scaler.step(optimizer)
    scaler.update()
    copies[1].load_state_dict(model.state_dict())
print(json.dumps({"loss": loss.item()}))
