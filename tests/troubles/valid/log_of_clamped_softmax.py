"""The logarithm of a softmax that was limited from below."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    x, y = torch.randn(16, 8) * 30, torch.randint(0, 4, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        p = torch.softmax(model(x).float(), -1).clamp(min=1e-6)
    loss = -torch.log(p).gather(1, y[:, None]).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
