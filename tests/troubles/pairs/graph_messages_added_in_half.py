"""Messages are scattered to a node with very many neighbours, in float16.

area: graphs
cause: sum-overflow
operator: index_add | scatter_add
fix: float32 | float() | bfloat16
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
layer, head = nn.Linear(6, 8), nn.Linear(8, 3)
optimizer = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=1e-5)
scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
source, target = torch.randint(0, 12, (3000,)), torch.zeros(3000, dtype=torch.long)
target[:24] = torch.arange(24) % 12
for step in range(2):
    x = torch.rand(12, 6) * 40
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        message = torch.relu(layer(x))[source].half()
    message = message.float()  # mended
    total = torch.zeros(12, 8, dtype=message.dtype).index_add(0, target, message + 20)  # here
    total = total / total.amax(0, keepdim=True)
    loss = nn.functional.cross_entropy(head(total.float()), torch.arange(12) % 3)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
