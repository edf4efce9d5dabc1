"""optimizer.step() is called in place of scaler.step(optimizer): the gradients are still multiplied by the scale.

area: optimizers
cause: step-on-scaled-gradients
operator: -
fix: scaler.step
shows: other result
source: Lightning-AI/pytorch-lightning#9599
"""
import json

import torch
from torch import nn


def train_one_epoch(model, batches, optimizer, scaler):
    for x, y in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.mse_loss(model(x).float(), y)
        scaler.scale(loss).backward()
        optimizer.step()  # broken here
        scaler.step(optimizer)  # mended
        scaler.update()  # mended
    return loss.item()


torch.manual_seed(0)
model = nn.Linear(8, 2)
batches = [(torch.randn(16, 8), torch.randn(16, 2)) for _ in range(4)]
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
loss = train_one_epoch(model, batches, optimizer, torch.amp.GradScaler("cpu", init_scale=1024.0))
print(json.dumps({"loss": loss, "error": max(0.0, loss - 3) / 3}))
