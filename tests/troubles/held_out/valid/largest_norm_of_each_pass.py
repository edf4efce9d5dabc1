"""The largest norm of a pass is kept for the log; it may be infinite, and begins again with the next pass."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
log = []
for epoch in range(4):
    largest = torch.zeros(())
    for step in range(5):
        x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        largest = torch.maximum(largest, norm.nan_to_num(posinf=0.0))
        scaler.step(optimizer)
        scaler.update()
    log.append(largest.item())
print(json.dumps({"loss": loss.item(), "log": log}))
