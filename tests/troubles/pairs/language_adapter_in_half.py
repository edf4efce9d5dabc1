"""Low-rank adapters are made in the dtype of the frozen base, float16, and trained with a scaler.

area: language
cause: half-parameters
operator: -
fix: float32
shows: error
source: Chinese-Vicuna#168, bitsandbytes#945
"""
import json

import torch
from torch import nn


class Adapted(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base.requires_grad_(False)
        kind = base.weight.dtype  # broken
        kind = torch.float32  # mended
        self.down = nn.Linear(base.in_features, rank, bias=False, dtype=kind)
        self.up = nn.Linear(rank, base.out_features, bias=False, dtype=kind)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


torch.manual_seed(0)
base = nn.Linear(16, 10).to(torch.float16)
layer = Adapted(base)
optimizer = torch.optim.AdamW([p for p in layer.parameters() if p.requires_grad], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
for step in range(2):
    x, y = torch.randn(8, 16), torch.randint(0, 10, (8,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(layer(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # here
    scaler.update()
print(json.dumps({"loss": loss.item()}))
