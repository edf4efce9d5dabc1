"""update() follows each of two steps, and each backward pass comes after the update before it."""
import json

import torch
from torch import nn

torch.manual_seed(0)
generator, critic = nn.Linear(4, 8), nn.Linear(8, 1)
for_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
for_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
for step in range(4):
    for_critic.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        fake = generator(torch.randn(16, 4))
        loss = nn.functional.softplus(critic(fake.detach()).float()).mean() + nn.functional.softplus(-critic(torch.randn(16, 8)).float()).mean()
    scaler.scale(loss).backward()
    scaler.step(for_critic)
    scaler.update()
    for_generator.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.softplus(-critic(fake).float()).mean()
    scaler.scale(loss).backward()
    scaler.step(for_generator)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
