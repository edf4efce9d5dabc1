"""Residual branches are added in float16 until a sum leaves its range.

area: vision
cause: sum-overflow
operator: add
fix: float32 | float() | bfloat16
shows: nan loss
source: JingyunLiang/SwinIR#180, Comfy-Org/ComfyUI#1401
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
stem, block, head = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 4)
optimizer = torch.optim.SGD([*stem.parameters(), *block.parameters(), *head.parameters()], lr=1e-6)
scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
with torch.no_grad():
    stem.weight.mul_(60)
for step in range(2):
    images, labels = torch.rand(2, 3, 8, 8), torch.randint(0, 4, (2,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        x = stem(images)
        for _ in range(14):
            branch = torch.tanh(block(x * 1e-4)) * 1e-2
            x = x + x + branch  # broken here
            x = 0.5 * (x + x) + branch  # mended
        pooled = x.float().mean((2, 3)) - x.float().amax((2, 3))
        loss = nn.functional.cross_entropy(head(pooled * 1e-6).float(), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
