"""The loss of a GAN is written as log(1 + exp(x)), and exp overflows float16 for scores above 11.

area: gan
cause: exp-overflow
also: logsumexp-by-hand
operator: exp
fix: softplus | clamp
shows: nan loss
source: non-saturating losses by hand; nerfstudio-project/nerfstudio PR#104 meets the same overflow
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
nn.init.constant_(critic[2].bias, 14.0)
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        score = critic(torch.randn(16, 8))
    loss = torch.log(1 + torch.exp(score)).mean()  # broken here
    loss = nn.functional.softplus(score.float()).mean()  # mended
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
