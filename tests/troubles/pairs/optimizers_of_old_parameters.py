"""The optimizer is made before the head is replaced for fine-tuning: the new head is never trained.

area: optimizers
cause: wrong-parameters
operator: -
fix: optimizer
shows: weights do not move
source: huggingface/accelerate#328, huggingface/blog#143 ("No inf checks were recorded") in its milder form
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # broken here
model[2] = nn.Linear(16, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # mended
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
before = model[2].weight.detach().clone()
for step in range(4):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "moved": (model[2].weight - before).norm().item() * 100}))
