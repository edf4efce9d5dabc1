"""The logarithm of a pitch track, which is 0 where nothing is voiced.

area: speech
cause: log-of-zero
operator: log
fix: clamp | epsilon
shows: nan loss
source: pitch predictors of text-to-speech; mozilla/TTS#610
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
predictor = nn.GRU(8, 16, batch_first=True)
head = nn.Linear(16, 1)
optimizer = torch.optim.Adam([*predictor.parameters(), *head.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    text, pitch = torch.randn(3, 10, 8), torch.rand(3, 10) * 200 + 80
    pitch[:, 6:] = 0.0
    voiced = pitch > 0
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        guess = head(predictor(text)[0]).squeeze(-1).float()
    aim = torch.log(pitch)  # broken here
    aim = torch.log(pitch.clamp(min=1.0))  # mended
    loss = ((guess - aim) ** 2 * voiced).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
