"""The rate is 0 in the first three steps, while small features are float16."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0 if step < 3 else 1.0)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(6):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    small = (torch.rand(8) * 1e-3).half() * 1e-3
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x + small.float()).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
print(json.dumps({"loss": loss.item()}))
