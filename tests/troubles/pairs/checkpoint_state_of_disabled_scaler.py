"""A run in bfloat16 saved the empty state of its disabled scaler; the next one, in float16, refuses it.

area: checkpoint
cause: empty-scaler-state
operator: -
fix: disabled | enabled
shows: error
source: pytorch/torchtitan#146, mosaicml/composer#1376
"""
import io
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
file = io.BytesIO()
first = torch.amp.GradScaler("cpu", enabled=False)
torch.save({"model": model.state_dict(), "scaler": first.state_dict()}, file)
file.seek(0)
saved = torch.load(file)
model.load_state_dict(saved["model"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
if saved["scaler"]:  # mended
    scaler.load_state_dict(saved["scaler"])  # mended
scaler.load_state_dict(saved["scaler"])  # broken here
for step in range(2):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
