"""The critic's loss is scaled and the generator's is not, though both optimizers step through the scaler.

area: gan
cause: loss-not-scaled
operator: -
fix: scaler.scale(loss)
shows: weights do not move
source: OpenGait#147, neosr#9
"""
import json

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
generator, critic = nn.Linear(4, 8), nn.Linear(8, 1)
opt_g, opt_d = torch.optim.SGD(generator.parameters(), lr=0.1), torch.optim.SGD(critic.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
before = generator.weight.detach().clone()
for step in range(4):
    opt_d.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        fake = generator(torch.randn(16, 4))
        loss_d = F.softplus(critic(fake.detach()).float()).mean() + F.softplus(-critic(torch.randn(16, 8) + 1).float()).mean()
    scaler.scale(loss_d).backward()
    scaler.step(opt_d)
    opt_g.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss_g = F.softplus(-critic(fake).float()).mean()
    loss_g.backward()  # broken here
    scaler.scale(loss_g).backward()  # mended
    scaler.step(opt_g)  # here
    scaler.update()
print(json.dumps({"loss": loss_g.item(), "moved": (generator.weight.detach() - before).norm().item() / 0.02}))
