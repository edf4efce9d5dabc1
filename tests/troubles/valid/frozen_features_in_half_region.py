"""Features are computed in float16 without gradients, and a float32 head is trained without a scaler."""
import json

import torch
from torch import nn

torch.manual_seed(0)
backbone, head = nn.Linear(8, 16), nn.Linear(16, 2)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        features = torch.relu(backbone(x))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(head(features.float()), y)
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
