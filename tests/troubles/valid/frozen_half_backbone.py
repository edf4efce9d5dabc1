"""A frozen float16 backbone, and a float32 head that is trained."""
import json

import torch
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(8, 32), nn.ReLU()).half().requires_grad_(False)
head = nn.Linear(32, 3)
optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 3, (16,))
    optimizer.zero_grad()
    with torch.no_grad():
        features = backbone(x.half())
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(head(features).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
