"""Evaluation in float16 between epochs of float32 training."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for batch in range(3):
        x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        right = (model(torch.randn(32, 8)).argmax(1) == torch.randint(0, 2, (32,))).float().mean()
    model.train()
print(json.dumps({"loss": loss.item(), "right": right.item()}))
