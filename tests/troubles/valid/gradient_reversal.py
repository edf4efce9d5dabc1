"""A gradient reversal layer multiplies the scaled gradient by -1 within backward."""
import json

import torch
from torch import nn


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -0.3 * grad


torch.manual_seed(0)
body, label, domain = nn.Linear(8, 16), nn.Linear(16, 3), nn.Linear(16, 2)
optimizer = torch.optim.SGD([*body.parameters(), *label.parameters(), *domain.parameters()], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        z = torch.relu(body(x))
        loss = nn.functional.cross_entropy(label(z).float(), torch.arange(16) % 3)
        loss = loss + nn.functional.cross_entropy(domain(Reverse.apply(z)).float(), torch.arange(16) % 2)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
