"""Stochastic weight averaging with its own schedule, and batch statistics made new at the end."""
import json

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
average = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = SWALR(optimizer, swa_lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
batches = [(torch.randn(16, 8), torch.randint(0, 2, (16,))) for _ in range(4)]
for x, y in batches:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    average.update_parameters(model)
    schedule.step()
update_bn([x for x, _ in batches], average)
print(json.dumps({"loss": loss.item()}))
