"""ReduceLROnPlateau looks at the loss of every step, skipped or not; it counts no steps."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**28)

scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=50)
for step in range(20):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step(loss.item())
print(json.dumps({"loss": loss.item()}))
