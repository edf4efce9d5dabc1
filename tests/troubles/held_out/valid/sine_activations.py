"""A network of sines multiplies by 30 before each, under bfloat16 autocast."""
import json

import torch
from torch import nn

torch.manual_seed(0)
layers = nn.ModuleList([nn.Linear(2, 32), nn.Linear(32, 32), nn.Linear(32, 1)])
optimizer = torch.optim.Adam(layers.parameters(), lr=1e-4)
for layer in layers[1:]:
    nn.init.uniform_(layer.weight, -0.014, 0.014)
grid = torch.rand(64, 2) * 2 - 1
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = grid
        for layer in layers[:2]:
            x = torch.sin(30 * layer(x).float())
        loss = (layers[2](x).float() - grid[:, :1]).square().mean()
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
