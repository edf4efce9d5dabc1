"""Each network of a GAN has a scaler of its own, used for its own loss and optimizer throughout."""
import json

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
generator, critic = nn.Linear(4, 8), nn.Linear(8, 1)
nets = {}
for name, net in (("generator", generator), ("critic", critic)):
    nets[name] = (torch.optim.Adam(net.parameters(), lr=1e-3), torch.amp.GradScaler("cpu", init_scale=64.0 if name == "critic" else 512.0))
for step in range(4):
    fake, real = generator(torch.randn(16, 4)), torch.randn(16, 8) + 1
    optimizer, scaler = nets["critic"]
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.softplus(critic(fake.detach()).float()).mean() + F.softplus(-critic(real).float()).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer, scaler = nets["generator"]
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.softplus(-critic(fake).float()).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
