"""unscale_() is called after every micro-batch, to log the norm; later micro-batches add scaled gradients to unscaled ones.

area: accumulation
cause: unscale-before-accumulation
operator: -
fix: last micro-batch | branch of scaler.step
shows: error
source: microsoft/Swin-Transformer#311, huggingface/accelerate#641
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
micro_batches = 4
for i in range(8):
    x, y = torch.randn(8, 10), torch.randint(0, 3, (8,))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = criterion(model(x), y) / micro_batches
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)  # broken here
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # broken
    if (i + 1) % micro_batches == 0:
        scaler.unscale_(optimizer)  # mended
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # mended
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
print(json.dumps({"loss": loss.item(), "norm": norm.item()}))
