"""A gradient penalty as the notes of torch.amp write it: the gradients of scaled outputs are divided by the scale."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randn(16, 1)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(x).float(), y)
    grads = torch.autograd.grad(scaler.scale(loss), list(model.parameters()), create_graph=True)
    grads = [g / scaler.get_scale() for g in grads]
    with torch.autocast("cpu", dtype=torch.float16):
        norm = sum(g.float().pow(2).sum() for g in grads).sqrt()
        loss = loss + norm
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
