"""The deviation over a batch of equal samples is 0, and the gradient of its square root infinite.

area: gan
cause: root-at-zero
operator: sqrt | std | var
fix: epsilon | eps | clamp
shows: all steps skipped
source: lucidrains/stylegan2-pytorch#100
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
generator, critic = nn.Linear(4, 8), nn.Linear(9, 1)
nn.init.zeros_(generator.weight)
optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
skipped = 0
for step in range(4):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        fake = generator(torch.randn(16, 4))
        variance = fake.float().var(0, correction=0).mean()
        spread = torch.sqrt(variance)  # broken here
        spread = torch.sqrt(variance + 1e-8)  # mended
        loss = -critic(torch.cat([fake.float(), spread.expand(16, 1)], 1)).float().mean()
    scaler.scale(loss).backward()
    scale = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    skipped += scaler.get_scale() < scale
print(json.dumps({"loss": loss.item(), "skipped": skipped, "steps": 4}))
