"""A softmax by hand whose largest value was subtracted."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    x, y = torch.randn(16, 8) * 20, torch.randint(0, 5, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(x).float()
    grown = torch.exp(logits - logits.max(dim=1, keepdim=True).values)
    p = grown / grown.sum(dim=1, keepdim=True)
    loss = -torch.log(p.gather(1, y[:, None]) + 1e-6).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
