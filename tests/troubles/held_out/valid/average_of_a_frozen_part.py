"""The average of a frozen layer in float16 does not move, because the layer does not."""
import json

import torch
from torch import nn

torch.manual_seed(0)
frozen, head = nn.Linear(8, 16).requires_grad_(False), nn.Linear(16, 2)
average = [p.detach().clone().half() for p in frozen.parameters()]
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(20):
    x, y = torch.randn(8, 8), torch.randint(0, 2, (8,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(head(torch.relu(frozen(x))).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    with torch.no_grad():
        for a, p in zip(average, frozen.parameters()):
            a.mul_(0.999).add_(p.half(), alpha=0.001)
print(json.dumps({"loss": loss.item()}))
