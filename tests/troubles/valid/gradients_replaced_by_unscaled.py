"""autograd.grad of the scaled loss; the parameters are given the divided gradients."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    grads = torch.autograd.grad(scaler.scale(loss), list(model.parameters()))
    for p, g in zip(model.parameters(), grads):
        p.grad = g / scaler.get_scale()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
