"""L-BFGS's closure calls backward on the loss itself, and the scaler divides its gradients.

area: optimizers
cause: closure-without-scale
also: loss-not-scaled
operator: -
fix: scaler.scale(loss)
shows: weights do not move
torch: no
source: pfn-extras#636, skorch#826; torch's own scaler takes no closure
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
x, y = torch.randn(32, 8), torch.randn(32, 1)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
scaler = torch.amp.GradScaler("cpu", init_scale=8192.0)
scaler.scale(torch.zeros(()))
before = model.weight.detach().clone()


def closure():
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(x).float(), y)
    loss.backward()  # broken here
    scaler.scale(loss).backward()  # mended
    return loss


for step in range(3):
    loss = scaler.step(optimizer, closure)  # here
    scaler.update()
print(json.dumps({"loss": loss.item(), "moved": (model.weight.detach() - before).norm().item()}))
