"""The scheduler steps only where the scale did not fall, which is how scripts of torch find out about skipped steps."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
for step in range(15):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    if before <= scaler.get_scale():
        scheduler.step()
print(json.dumps({"loss": loss.item()}))
