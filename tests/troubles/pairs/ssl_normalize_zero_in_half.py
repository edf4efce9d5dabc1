"""normalize() keeps a zero row from division by 0 with an eps of 1e-12, which is 0 in float16.

area: self-supervision
cause: epsilon-too-small
operator: div | normalize
fix: eps | float() | float32 | clamp | epsilon
shows: nan loss
source: kscalelabs/minppo PR#19 on eps in fp16
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Linear(8, 4, bias=False)
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    x = torch.randn(6, 8)
    x[4] = 0.0
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        z = encoder(x)
    z = z.half()
    unit = z / z.norm(dim=1, keepdim=True).clamp_min(1e-12)  # broken here
    unit = z.float() / z.float().norm(dim=1, keepdim=True).clamp_min(1e-12)  # mended
    loss = nn.functional.cross_entropy((unit @ unit.t()).float() * 5, torch.arange(6))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
