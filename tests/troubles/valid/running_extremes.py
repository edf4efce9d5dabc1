"""Running minimum and maximum begin at inf and -inf."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 4)
low, high = torch.full((4,), float("inf")), torch.full((4,), float("-inf"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(torch.randn(16, 6)).float()
    low, high = torch.minimum(low, out.detach().amin(0)), torch.maximum(high, out.detach().amax(0))
    loss = ((out - low) / (high - low)).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
