"""Float16 parameters with float32 copies that the optimizer updates, as before autocast existed."""
import copy
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
master = copy.deepcopy(model)
model.half()
optimizer = torch.optim.SGD(master.parameters(), lr=0.1)
scale = 256.0
for step in range(4):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    model.zero_grad()
    loss = nn.functional.cross_entropy(model(x.half()).float(), y)
    (loss * scale).backward()
    for p, m in zip(model.parameters(), master.parameters()):
        m.grad = p.grad.float() / scale
    optimizer.step()
    with torch.no_grad():
        for p, m in zip(model.parameters(), master.parameters()):
            p.copy_(m)
print(json.dumps({"loss": loss.item()}))
