"""zero_grad() stands between backward and the step, so the scaler finds no gradient at all.

area: optimizers
cause: no-gradients
operator: -
fix: zero_grad
shows: error
source: BoT-SORT#85, WeatherGenerator#356 ("No inf checks were recorded for this optimizer")
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()  # mended
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    optimizer.zero_grad()  # broken here
    scaler.step(optimizer)  # here
    scaler.update()
print(json.dumps({"loss": loss.item()}))
