"""After a restart the gradients of the interrupted iteration are unscaled by a scaler that has scaled nothing.

area: checkpoint
cause: not-scaled-by-scaler
operator: -
fix: scale(
shows: error
source: facebookresearch/fairseq2#1346, facebookresearch/detectron2#3686
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
saved = torch.amp.GradScaler("cpu", init_scale=64.0).state_dict()
scaler = torch.amp.GradScaler("cpu")
scaler.load_state_dict(saved)
for step in range(2):
    x, y = torch.randn(8, 8), torch.randint(0, 2, (8,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()  # broken
    scaler.scale(loss).backward()  # mended
    scaler.unscale_(optimizer)  # here
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
