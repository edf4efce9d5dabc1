"""Linear attention adds up the keys of a long recording in float16.

area: speech
cause: sum-overflow
operator: cumsum | sum
fix: float32 | float() | mean | bfloat16
ampc: runs
shows: nan loss
source: idiap/fast-transformers#32
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
to_key, head = nn.Linear(16, 16), nn.Linear(16, 4)
optimizer = torch.optim.Adam([*to_key.parameters(), *head.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for step in range(2):
    frames, y = torch.rand(2, 3000, 16) * 80, torch.randint(0, 4, (2,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        keys = nn.functional.elu(to_key(frames)) + 1
        state = keys.half().cumsum(1)[:, -1]  # broken here
        state = keys.float().cumsum(1)[:, -1]  # mended
        context = (keys.float() / state[:, None].float().clamp(min=1.0)).mean(1) - state.float() * 1e-4
        loss = nn.functional.cross_entropy(head(context).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
