"""Pairwise ranking takes the logarithm of a sigmoid, which is 0 for scores far apart.

area: recommendation
cause: log-of-sigmoid
operator: log
fix: logsigmoid
shows: nan loss
source: BPR losses of recommenders; unifyai/ivy#19759 and kornia/kornia PR#65 for the same formula
"""
import json

import torch
from torch import nn


class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.users, self.items = nn.Embedding(20, 16), nn.Embedding(50, 16)

    def forward(self, user, item):
        return (self.users(user) * self.items(item)).sum(-1)


torch.manual_seed(0)
model = Factors()
with torch.no_grad():
    for p in model.parameters():
        p.mul_(12)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(3):
    user, liked, other = torch.randint(0, 20, (64,)), torch.randint(0, 50, (64,)), torch.randint(0, 50, (64,))
    optimizer.zero_grad()
    apart = model(user, liked) - model(user, other)
    loss = -torch.log(torch.sigmoid(apart)).mean()  # broken here
    loss = -nn.functional.logsigmoid(apart).mean()  # mended
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
