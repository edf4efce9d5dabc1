"""The warm-up counts steps that the scaler skipped: the scale begins far too high, and the first learning rates are never used.

area: schedule
cause: scheduler-after-skip
operator: -
fix: gate | skipped
shows: other result
source: pytorch/pytorch#67590, #44511, huggingface/transformers#11106
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 12))
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
rates = []
for step in range(40):
    x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    rate, scale = optimizer.param_groups[0]["lr"], scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    if scaler.get_scale() >= scale:
        rates.append(rate)
    if scaler.get_scale() >= scale:  # mended
        scheduler.step()  # mended
    scheduler.step()  # broken here
wanted = 0.1 / 12
print(json.dumps({"loss": loss.item(), "error": abs(rates[0] - wanted) / wanted}))
