"""The amplitudes of a spectrogram are compressed by ** 0.3, whose gradient at silence is infinite.

area: speech
cause: root-at-zero
operator: pow
fix: epsilon | clamp | eps
shows: all steps skipped
source: compressed spectral losses of speech enhancement; yenchenlin/nerf-pytorch#38 for the power
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(20, 20, bias=False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
skipped = 0
for step in range(3):
    power = torch.rand(6, 20)
    power[4] = 0.0  # silence
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        guess = model(power)
    guess = guess.float().abs()
    loss = (guess**0.3 - power**0.3).square().mean()  # broken here
    loss = ((guess + 1e-5) ** 0.3 - (power + 1e-5) ** 0.3).square().mean()  # mended
    scaler.scale(loss).backward()
    skipped += not model.weight.grad.isfinite().all().item()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "skipped": skipped, "steps": 3}))
