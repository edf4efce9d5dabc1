"""The generator's step leaves gradients in the critic, which are not zeroed before its own backward pass.

area: gan
cause: leftover-gradients
operator: -
fix: zero_grad
shows: other result
source: neosr#9, #50; MPL#38
"""
import json

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
generator, critic = nn.Linear(4, 8), nn.Linear(8, 1)
for_generator = torch.optim.SGD(generator.parameters(), lr=0.01)
for_critic = torch.optim.SGD(critic.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
error = 0.0
for step in range(4):
    noise, real = torch.randn(16, 4), torch.randn(16, 8) + 1
    for_critic.zero_grad()  # mended
    with torch.autocast("cpu", dtype=torch.float16):
        fake = generator(noise).float()
        loss = F.softplus(critic(fake.detach()).float()).mean() + F.softplus(-critic(real).float()).mean()
    scaler.scale(loss).backward()
    right = torch.autograd.grad(F.softplus(critic(fake.detach())).mean() + F.softplus(-critic(real)).mean(), critic.weight)[0]
    scaler.unscale_(for_critic)  # here
    error = max(error, ((critic.weight.grad - right).norm() / right.norm()).item())
    scaler.step(for_critic)
    for_generator.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.softplus(-critic(fake).float()).mean()
    scaler.scale(loss).backward()
    scaler.step(for_generator)
    scaler.update()
print(json.dumps({"loss": loss.item(), "error": error}))
