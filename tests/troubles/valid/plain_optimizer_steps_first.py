"""A float32 part with its own loss and optimizer steps between the scaled backward pass and its step."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

bias = nn.Parameter(torch.zeros(2))
plain = torch.optim.SGD([bias], lr=0.01)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    plain.zero_grad()
    (bias - 1).square().sum().backward()
    plain.step()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
