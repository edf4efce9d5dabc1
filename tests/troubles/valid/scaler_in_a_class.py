"""A class that holds the scaler and does backward, clipping and step in one call."""
import json

import torch
from torch import nn

torch.manual_seed(0)
class LossScaler:
    def __init__(self):
        self._scaler = torch.amp.GradScaler("cpu", init_scale=512.0)

    def __call__(self, loss, optimizer, parameters, clip=None, last=True):
        self._scaler.scale(loss).backward()
        if not last:
            return None
        if clip is not None:
            self._scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(parameters, clip)
        else:
            self._scaler.unscale_(optimizer)
            norm = torch.stack([p.grad.norm() for p in parameters]).norm()
        self._scaler.step(optimizer)
        self._scaler.update()
        return norm


model = nn.Linear(8, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_scaler = LossScaler()
for step in range(4):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y) / 2
    loss_scaler(loss, optimizer, list(model.parameters()), clip=1.0 if step % 4 == 1 else None, last=step % 2 == 1)
    if step % 2 == 1:
        optimizer.zero_grad()
print(json.dumps({"loss": loss.item()}))
