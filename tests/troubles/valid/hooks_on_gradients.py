"""A hook clamps the gradient of an activation, in units of the scale."""
import json

import torch
from torch import nn

torch.manual_seed(0)
first, second = nn.Linear(8, 16), nn.Linear(16, 2)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        z = torch.relu(first(x))
        if z.requires_grad:
            z.register_hook(lambda g: g.clamp(-0.1 * scaler.get_scale(), 0.1 * scaler.get_scale()))
        loss = nn.functional.cross_entropy(second(z).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
