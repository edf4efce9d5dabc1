"""A graph convolution divides by the root of the degree, and one node has none.

area: graphs
cause: power-of-zero
operator: pow | rsqrt
fix: clamp | epsilon
shows: nan loss
source: pyg-team/pytorch_geometric#61, mlx-graphs/mlx-graphs PR#18
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
layer = nn.Linear(6, 3)
optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
links = (torch.rand(12, 12) > 0.6).float()
links = ((links + links.T) > 0).float()
links[7], links[:, 7] = 0.0, 0.0
degree = links.sum(1)
root = degree.pow(-0.5)  # broken here
root = degree.clamp(min=1.0).pow(-0.5)  # mended
spread = root[:, None] * links * root
for step in range(3):
    x = torch.randn(12, 6)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(layer(spread @ x).float(), torch.arange(12) % 3)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
