"""The weights of the edges that reach a node are exponentials in float16, without the largest, over their sum.

area: graphs
cause: exp-overflow
also: cast-overflow
operator: exp | cast
fix: max | clamp | softmax
shows: nan loss
source: a common pattern of graph attention; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
feature, score = nn.Linear(8, 8), nn.Linear(16, 1)
optimizer = torch.optim.SGD([*feature.parameters(), *score.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
a, b = torch.randint(0, 10, (60,)), torch.arange(60) % 10
for step in range(2):
    x = torch.randn(10, 8) * 20
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        h = feature(x)
        e = score(torch.cat([h[a], h[b]], 1))[:, 0].half()
        most = torch.full((10,), -1e4, dtype=e.dtype).scatter_reduce(0, b, e.detach(), "amax")  # mended
        e = e - most[b]  # mended
        w = e.exp().half()  # here
        total = torch.zeros(10, dtype=w.dtype).index_add(0, b, w)
        out = torch.zeros(10, 8).index_add(0, b, (w / total[b])[:, None].float() * h[a].float())
    loss = out.square().mean() * 1e-3
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
