"""A recurrent front end is fed samples of 16 bits that nobody scaled, and its input product overflows float16.

area: speech
cause: product-overflow
also: cast-overflow
operator: gru | linear | addmm | mm | gru_cell
fix: bfloat16 | smaller | float()
shows: nan loss
source: mozilla/TTS#610; raw audio in half precision
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
first, last = nn.Linear(40, 16), nn.Linear(16, 3)
optimizer = torch.optim.Adam([*first.parameters(), *last.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
waves = torch.randint(-32768, 32768, (4, 6, 40)).float()
waves = waves / 32768  # mended
for step in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        hidden = first(waves * 4)  # here
        loss = nn.functional.cross_entropy(last(torch.tanh(hidden).mean(1)).float(), torch.tensor([0, 1, 2, 0]))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
