"""log(exp(x).sum()) of logarithms of probabilities, which are at most 0."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 6)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(x)
    log_p = torch.log_softmax(out.float(), -1)
    groups = torch.stack([torch.log(torch.exp(log_p[:, :3]).sum(1)), torch.log(torch.exp(log_p[:, 3:]).sum(1))], 1)
    loss = nn.functional.nll_loss(groups, y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
