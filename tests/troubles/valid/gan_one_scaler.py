"""A GAN with one scaler for two losses and two optimizers, and one update at the end."""
import json

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
generator, critic = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(), nn.Linear(16, 1))
for_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
for_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(4):
    noise, real = torch.randn(16, 4), torch.randn(16, 8) + 1
    for_critic.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        fake = generator(noise)
        loss = F.softplus(critic(fake.detach()).float()).mean() + F.softplus(-critic(real).float()).mean()
    scaler.scale(loss).backward()
    scaler.step(for_critic)
    for_generator.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.softplus(-critic(fake).float()).mean()
    scaler.scale(loss).backward()
    scaler.step(for_generator)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
