"""L-BFGS with a closure, in float32, without a scaler."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
x, y = torch.randn(32, 8), torch.randn(32, 1)
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss


for step in range(2):
    loss = optimizer.step(closure)
print(json.dumps({"loss": loss.item()}))
