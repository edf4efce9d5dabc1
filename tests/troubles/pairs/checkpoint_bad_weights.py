"""The weights that are loaded contain a nan, left by a run that went wrong.

area: checkpoint
cause: bad-parameter
operator: -
fix: checkpoint
shows: nan loss
advise: not finite in float32 either
source: Lightning-AI/pytorch-lightning#9799
"""
import io
import json

import torch
from torch import nn

torch.manual_seed(0)
other = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
other[0].weight.data[3, 1] = float("nan")  # broken
file = io.BytesIO()
torch.save(other.state_dict(), file)
file.seek(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
model.load_state_dict(torch.load(file))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)  # here
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
