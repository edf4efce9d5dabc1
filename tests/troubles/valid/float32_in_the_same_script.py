"""A float32 model is trained with its own optimizer beside one with a scaler."""
import json

import torch
from torch import nn

torch.manual_seed(0)
big, small = nn.Linear(8, 2), nn.Linear(8, 2)
for_big, for_small = torch.optim.SGD(big.parameters(), lr=0.1), torch.optim.SGD(small.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    for_big.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(big(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(for_big)
    scaler.update()
    for_small.zero_grad()
    other = nn.functional.cross_entropy(small(x), y)
    other.backward()
    nn.utils.clip_grad_norm_(small.parameters(), 1.0)
    for_small.step()
print(json.dumps({"loss": loss.item() + other.item()}))
