"""Messages are averaged over the neighbours that a scattered count gives, and one node has none.

area: graphs
cause: division-by-zero
operator: div
fix: epsilon | + eps | clamp | where(
shows: nan loss
source: hand-written message passing; pyg-team/pytorch_geometric#61
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
first, second = nn.Linear(6, 8), nn.Linear(8, 3)
optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
source, target = torch.randint(0, 10, (40,)), torch.randint(0, 9, (40,))  # nobody points at node 9
for step in range(2):
    x = torch.randn(10, 6)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        h = first(x)
    total = torch.zeros(10, 8).index_add(0, target, h[source].float())
    count = torch.zeros(10).index_add(0, target, torch.ones(40))
    mean = total / count[:, None]  # broken here
    mean = total / count.clamp(min=1)[:, None]  # mended
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(second(mean).float(), torch.arange(10) % 3)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
