"""The softmax over a node's neighbours is exp, divided by a scattered sum, in float16.

area: graphs
cause: exp-overflow
also: softmax-by-hand
operator: exp
fix: max | clamp
shows: nan loss
source: hand-written graph attention; facebookresearch/xformers PR#98
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
layer, score = nn.Linear(6, 8), nn.Linear(16, 1)
with torch.no_grad():
    score.weight.mul_(30)
optimizer = torch.optim.SGD([*layer.parameters(), *score.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
source, target = torch.randint(0, 10, (60,)), torch.arange(60) % 10
for step in range(3):
    x = torch.randn(10, 6)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        h = layer(x)
        e = score(torch.cat([h[source], h[target]], 1)).squeeze(1)
    e = e.float() - e.float().max()  # mended
    grown = torch.exp(e)  # here
    total = torch.zeros(10, dtype=grown.dtype).index_add(0, target, grown)
    weight = grown / total[target]
    out = torch.zeros(10, 8).index_add(0, target, weight.float()[:, None] * h[source].float())
    loss = nn.functional.cross_entropy(out, torch.arange(10) % 3)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
