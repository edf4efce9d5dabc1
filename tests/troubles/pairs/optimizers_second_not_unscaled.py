"""The gradients of two optimizers are clipped together, after unscale_ of the first alone.

area: optimizers
cause: clip-scaled-gradients
operator: -
fix: unscale_
shows: other result
source: Lightning-AI/pytorch-lightning#9694, pytorch/pytorch#40907
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
body, head = nn.Linear(8, 16), nn.Linear(16, 2)
parameters = [*body.parameters(), *head.parameters()]
slow, fast = torch.optim.SGD(body.parameters(), lr=0.01), torch.optim.AdamW(head.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    slow.zero_grad()
    fast.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(head(torch.relu(body(x))).float(), y)
    scaler.scale(loss).backward()
    scaler.unscale_(slow)
    scaler.unscale_(fast)  # mended
    norm = nn.utils.clip_grad_norm_(parameters, 1.0)  # here
    scaler.step(slow)
    scaler.step(fast)
    scaler.update()
print(json.dumps({"loss": loss.item(), "error": max(0.0, norm.item() - 10)}))
