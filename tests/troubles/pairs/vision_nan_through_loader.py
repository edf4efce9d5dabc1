"""A file of a dataset holds a nan; it comes to the model by a DataLoader, in a batch with good samples.

area: vision
cause: bad-data
operator: -
fix: batch
shows: nan loss
source: Totoro97/f2-nerf#33
"""
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
images = torch.rand(16, 1, 8, 8)
images[9, 0, 4, 4] = float("nan")
images = torch.nan_to_num(images)  # mended
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
total = 0.0
for x, y in DataLoader(TensorDataset(images, torch.arange(16) % 2), batch_size=4):  # here
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)  # here
    total += loss.item()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": total}))
