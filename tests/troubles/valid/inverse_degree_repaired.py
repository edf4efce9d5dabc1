"""The inverse root of degrees is infinite for isolated nodes, and is replaced by 0."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
links = (torch.rand(10, 10) > 0.7).float()
links = ((links + links.T) > 0).float()
links[4], links[:, 4] = 0.0, 0.0
degree = links.sum(1)
root = degree.pow(-0.5)
root[root == float("inf")] = 0.0
spread = root[:, None] * links * root
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(spread @ torch.randn(10, 6)).float(), torch.arange(10) % 2)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
