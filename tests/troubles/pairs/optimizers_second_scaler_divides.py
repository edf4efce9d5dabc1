"""Each of two optimizers has a scaler of its own, but the losses are added up and scaled by the first alone.

area: optimizers
cause: other-scaler
operator: -
fix: one GradScaler
shows: other result
source: OpenGait#147 (two scalers)
"""
import json

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
body, head = nn.Linear(8, 16), nn.Linear(16, 1)
slow, fast = torch.optim.SGD(body.parameters(), lr=0.01), torch.optim.SGD(head.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
head_scaler = torch.amp.GradScaler("cpu", init_scale=64.0)  # broken
head_scaler = scaler  # mended
error = 0.0
for step in range(3):
    x, y = torch.randn(16, 8), torch.randn(16, 1)
    slow.zero_grad()
    fast.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.mse_loss(head(torch.relu(body(x))).float(), y)
        penalty = head(torch.relu(body(x))).float().square().mean()
    head_scaler.scale(penalty)
    scaler.scale(loss + 0.1 * penalty).backward()
    right = head.weight.grad / scaler.get_scale()
    scaler.step(slow)
    head_scaler.unscale_(fast)  # here
    error = max(error, ((head.weight.grad - right).norm() / right.norm()).item())
    head_scaler.step(fast)
    scaler.update()
    head_scaler.update()  # broken
print(json.dumps({"loss": loss.item(), "error": error}))
