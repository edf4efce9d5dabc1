"""Two scalers, but update() is called on the first only: the second step of the other fails.

area: gan
cause: update-missing
operator: -
fix: update
shows: error
source: MPL#38, OpenGait#147
"""
import json

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
generator, critic = nn.Linear(4, 8), nn.Linear(8, 1)
opt_g, opt_d = torch.optim.Adam(generator.parameters(), lr=1e-3), torch.optim.Adam(critic.parameters(), lr=1e-3)
scaler_g, scaler_d = torch.amp.GradScaler("cpu", init_scale=64.0), torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    opt_d.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        fake = generator(torch.randn(16, 4))
        loss = F.softplus(critic(fake.detach()).float()).mean() + F.softplus(-critic(torch.randn(16, 8)).float()).mean()
    scaler_d.scale(loss).backward()
    scaler_d.step(opt_d)
    scaler_d.update()
    opt_g.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.softplus(-critic(fake).float()).mean()
    scaler_g.scale(loss).backward()
    scaler_g.step(opt_g)  # here
    scaler_d.update(64.0)  # broken
    scaler_g.update()  # mended
print(json.dumps({"loss": loss.item()}))
