"""The gradient with respect to the input, of an unscaled loss, for an attack; then the training step with a scaler."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    x.requires_grad_()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    (direction,) = torch.autograd.grad(loss, x)
    attacked = (x + 0.1 * direction.sign()).detach()
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(attacked).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
