"""The shadow weights of a LoRA are bfloat16, and a hundredth of a per cent of the difference is subtracted from them.

area: ema
cause: weights-too-coarse
operator: -
fix: float32
shows: weights do not move
source: d8ahazard/sd_dreambooth_extension PR#1415; ostris/ai-toolkit#1034 for the way it is written
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(32, 8)
nn.init.uniform_(model.weight, 0.5, 1.0)
kind = torch.bfloat16  # broken
kind = torch.float32  # mended
shadow = [p.detach().to(kind) for p in model.parameters()]
start = [s.clone() for s in shadow]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(15):
    x = torch.randn(16, 32)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (model(x).float() - 1).square().mean()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for s, p in zip(shadow, model.parameters()):
            difference = s - p.to(s.dtype)
            difference.mul_(1 - 0.9999)
            s.sub_(difference)  # here
way = sum((p.detach() - s.float()).norm().item() for p, s in zip(model.parameters(), start)) * 1e-4 * 7
moved = sum((a.float() - b.float()).norm().item() for a, b in zip(shadow, start))
print(json.dumps({"loss": loss.item(), "moved": moved / way}))
