"""Time steps are divided by 1000 in bfloat16 and become one turn of an angle: the error is a hundredth."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(2, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    t = torch.randint(0, 1000, (32,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        part = t.bfloat16() / 1000
        x = torch.stack([(6.2832 * part).sin(), (6.2832 * part).cos()], 1)
        loss = model(x).float().square().mean()
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
