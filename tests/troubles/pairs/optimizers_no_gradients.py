"""The loss is made from a detached output, so no gradient reaches the optimizer's parameters.

area: optimizers
cause: no-gradients
operator: -
fix: grad
shows: error
source: huggingface/accelerate#357, open-mmlab/mmsegmentation#3230, huggingface/transformers#24003
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
body, head = nn.Linear(8, 16), nn.Linear(16, 2)
optimizer = torch.optim.SGD(body.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        features = torch.relu(body(x))
        out = head(features.detach())  # broken
        out = head(features)  # mended
        loss = nn.functional.cross_entropy(out.float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # here
    scaler.update()
print(json.dumps({"loss": loss.item()}))
