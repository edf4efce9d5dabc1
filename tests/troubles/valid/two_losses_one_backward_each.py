"""Two losses of one model have a backward each, both scaled, before one step."""
import json

import torch
from torch import nn

torch.manual_seed(0)
body, left, right = nn.Linear(8, 16), nn.Linear(16, 2), nn.Linear(16, 1)
model = nn.ModuleList([body, left, right])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        z = torch.relu(body(x))
        first = nn.functional.cross_entropy(left(z).float(), y)
        second = nn.functional.mse_loss(right(z).float().squeeze(1), y.float())
    scaler.scale(first).backward(retain_graph=True)
    scaler.scale(0.1 * second).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": first.item() + second.item()}))
