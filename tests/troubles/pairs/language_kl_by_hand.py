"""The divergence from a reference model is the sum of p times the logarithm of p / q, and q rounds to 0.

area: language
cause: division-by-zero
also: log-of-softmax | log-of-zero
operator: div | log
fix: log_softmax | epsilon | kl_div | + eps | clamp | where(
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model, reference = nn.Linear(16, 30), nn.Linear(16, 30).requires_grad_(False)
with torch.no_grad():
    reference.weight.mul_(60)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    x = torch.randn(12, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        a, b = model(x), reference(x)
    p, q = torch.softmax(a, -1), torch.softmax(b, -1)
    loss = (p * (p / q).log()).sum(-1).mean().float()  # broken here
    log_p, log_q = torch.log_softmax(a.float(), -1), torch.log_softmax(b.float(), -1)  # mended
    loss = (log_p.exp() * (log_p - log_q)).sum(-1).mean()  # mended
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
