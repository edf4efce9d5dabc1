"""update() is called after the discriminator's step and again after the generator's, although the generator's loss was scaled before.

area: gan
cause: update-between-steps
operator: -
fix: once
shows: other result
source: huggingface/accelerate#439
"""
import json

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
generator, critic = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(), nn.Linear(16, 1))
of_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
of_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=1)
error = 0.0
for step in range(4):
    noise, real = torch.randn(16, 4), torch.randn(16, 8) + 2
    of_critic.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        fake = generator(noise)
        loss_critic = F.softplus(critic(fake.detach()).float()).mean() + F.softplus(-critic(real).float()).mean()
        loss_generator = F.softplus(-critic(fake).float()).mean()
    scaler.scale(loss_generator).backward(inputs=list(generator.parameters()))
    plain = generator.weight.grad.clone() / scaler.get_scale()
    scaler.scale(loss_critic).backward(inputs=list(critic.parameters()))
    scaler.step(of_critic)
    scaler.update()  # broken
    scaler.unscale_(of_generator)  # broken here
    scaler.unscale_(of_generator)  # mended
    error = max(error, ((generator.weight.grad - plain).norm() / plain.norm()).item())
    scaler.step(of_generator)
    scaler.update()
    of_generator.zero_grad()
print(json.dumps({"loss": loss_generator.item(), "error": error}))
