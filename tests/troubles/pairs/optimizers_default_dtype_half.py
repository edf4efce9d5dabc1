"""float16 is made the default dtype, to save memory, and the scaler refuses the gradients.

area: optimizers
cause: half-parameters
operator: -
fix: float32
shows: error
source: bitsandbytes#945
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
torch.set_default_dtype(torch.float16)  # broken here
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # here
    scaler.update()
print(json.dumps({"loss": loss.item()}))
