"""The first GAN loss, log(1 - D(G(z))), when the critic is certain: the logarithm of 0.

area: gan
cause: log-of-sigmoid
operator: log
fix: with_logits | logsigmoid
shows: nan loss
source: pytorch/pytorch#61098, and the reason why BCE is banned under autocast on GPUs
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
critic = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
nn.init.constant_(critic[2].bias, 20.0)
optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        score = critic(generator(torch.randn(16, 4)))
        real = torch.sigmoid(score)
        loss = torch.log(1 - real).mean()  # broken here
        loss = nn.functional.logsigmoid(-score.float()).mean()  # mended
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
