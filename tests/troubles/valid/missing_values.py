"""Missing measurements are nan in the data, and are replaced before the model."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(12, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
table = torch.randn(32, 6)
table[torch.rand(32, 6) < 0.2] = float("nan")
known = ~torch.isnan(table)
x = torch.cat([torch.nan_to_num(table, nan=0.0), known.float()], 1)
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(x).squeeze(1).float(), known.float().mean(1))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
