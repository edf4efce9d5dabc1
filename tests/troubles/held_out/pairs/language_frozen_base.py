"""The features of a frozen base are computed under no_grad, and the only trained layers are in it.

area: language
cause: graph-cut
operator: -
fix: no_grad | requires
shows: error
source: huggingface/accelerate#328, huggingface/transformers#24003
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
base, adapter, head = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)
for p in [*base.parameters(), *head.parameters()]:
    p.requires_grad_(False)
optimizer = torch.optim.AdamW(adapter.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=32.0)
for step in range(2):
    x, y = torch.randn(8, 8), torch.randint(0, 4, (8,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        with torch.no_grad():
            features = torch.relu(base(x))
            features = features + adapter(features)  # broken
        features = features + adapter(features)  # mended
        loss = nn.functional.cross_entropy(head(features).float(), y)
    scaler.scale(loss).backward()  # here
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
