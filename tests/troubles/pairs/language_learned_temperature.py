"""A learned temperature multiplies similarities by exp of a parameter that nothing limits, in float16.

area: language
cause: power-overflow
operator: mul
fix: clamp | float()
shows: nan loss
source: openai/CLIP PR#530, openai/CLIP#46, kornia/kornia#3481
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
text, image = nn.Linear(16, 8), nn.Linear(12, 8)
temperature = nn.Parameter(torch.tensor(14.0))
optimizer = torch.optim.AdamW([*text.parameters(), *image.parameters(), temperature], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
for step in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        a = nn.functional.normalize(text(torch.randn(8, 16)), dim=1)
        b = nn.functional.normalize(image(torch.randn(8, 12)), dim=1)
        alike = a @ b.t()
    alike = alike.half()
    logits = temperature.exp() * alike  # broken here
    logits = temperature.exp().clamp(max=100.0) * alike  # mended
    loss = nn.functional.cross_entropy(logits.float(), torch.arange(8))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
