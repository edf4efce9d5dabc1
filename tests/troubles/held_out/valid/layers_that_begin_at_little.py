"""Twenty residual layers in bfloat16 begin with a factor of 1e-5, as in CaiT: they add nothing at first."""
import json

import torch
from torch import nn

torch.manual_seed(0)
layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(20)]).bfloat16()
factors = [torch.full((16,), 1e-5, dtype=torch.bfloat16) for _ in range(20)]
with torch.no_grad():
    x = torch.randn(4, 16).bfloat16()
    for layer, factor in zip(layers, factors):
        x = x + factor * torch.tanh(layer(x))
head = nn.Linear(16, 2)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
loss = nn.functional.cross_entropy(head(x.float()), torch.tensor([0, 1, 0, 1]))
loss.backward()
optimizer.step()
print(json.dumps({"loss": loss.item()}))
