"""An average of gradient norms takes in 0 for norms of skipped steps."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**26)
typical = torch.ones(())
for step in range(20):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    typical = 0.9 * typical + 0.1 * torch.where(norm.isfinite(), norm, torch.zeros(()))
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "typical": typical.item()}))
