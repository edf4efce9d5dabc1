"""The entropy of a distribution with zeros, by xlogy."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        log_p = torch.log_softmax(model(torch.randn(16, 4)).float(), -1)
    target = nn.functional.one_hot(torch.randint(0, 4, (16,)), 4).float()
    loss = (torch.xlogy(target, target) - target * log_p).sum(-1).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
