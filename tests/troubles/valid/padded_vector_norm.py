"""linalg.vector_norm of rows that are zero: its gradient there is 0."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 4, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    x = torch.randn(8, 6)
    x[5:] = 0.0
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        z = model(x)
    loss = torch.linalg.vector_norm(z.float(), dim=1).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
