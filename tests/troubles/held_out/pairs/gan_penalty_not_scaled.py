"""The discriminator's loss is scaled, and the penalty on its real gradients is added by a backward() of its own that is not.

area: gan
cause: mixed-scales
operator: -
fix: every loss | scale(
shows: other result
source: neosr#9, #50 and OpenGait#147 for several losses
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
disc = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(disc.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
wanted = 0.0
for step in range(3):
    real, fake = torch.randn(8, 4), torch.randn(8, 4) + 1
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.softplus(-disc(real).float()).mean() + nn.functional.softplus(disc(fake).float()).mean()
    scaler.scale(loss).backward()
    real.requires_grad_()
    slope = torch.autograd.grad(disc(real).sum(), real, create_graph=True)[0]
    penalty = 10 * slope.square().sum(1).mean()
    plain = torch.autograd.grad(penalty, disc[0].weight, retain_graph=True)[0]
    before = disc[0].weight.grad.clone()
    penalty.backward()  # broken
    scaler.scale(penalty).backward()  # mended
    came = (disc[0].weight.grad - before) / scaler.get_scale()
    error = ((came - plain).norm() / plain.norm()).item()
    scaler.step(optimizer)  # here
    scaler.update()
print(json.dumps({"loss": loss.item(), "error": error}))
