"""A temperature, a margin and an epsilon are float16 tensors that can hold them."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
temperature, margin, eps = (torch.tensor(v, dtype=torch.float16) for v in (0.07, 0.999, 1e-4))
for step in range(3):
    x = torch.randn(8, 8)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        z = model(x).half()
        z = z / (z.norm(dim=1, keepdim=True).half() + eps)
        scores = (z @ z.t()).float() / temperature.float()
        loss = nn.functional.cross_entropy(scores * margin.float(), torch.arange(8))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
