"""Two optimizers take turns; the one whose turn it is not is not stepped, and its gradients are zeroed."""
import json

import torch
from torch import nn

torch.manual_seed(0)
body, head = nn.Linear(8, 16), nn.Linear(16, 2)
optimizers = [torch.optim.SGD(body.parameters(), lr=0.1), torch.optim.Adam(head.parameters(), lr=1e-3)]
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(6):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    for optimizer in optimizers:
        optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(head(torch.relu(body(x))).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizers[step % 2])
    scaler.update()
print(json.dumps({"loss": loss.item()}))
