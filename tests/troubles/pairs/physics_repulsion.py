"""The repulsion of atoms, (s / r) ** 12, is beyond float16 for close pairs, and infinity minus infinity is nan.

area: physics
cause: power-overflow
operator: pow | mul
fix: bfloat16 | float()
shows: nan loss
source: interatomic potentials in half precision; aqlaboratory/openfold PR#222
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
shift = nn.Linear(3, 3)
optimizer = torch.optim.SGD(shift.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
atoms = torch.rand(8, 3) * 1.2
for step in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        moved = shift(atoms) * 0.1
    place = atoms + moved.float()
    apart = torch.pdist(place).clamp(min=0.2)
    near = (0.8 / apart).half()  # broken
    near = 0.8 / apart  # mended
    energy = near**12 - near.pow(6)  # here
    loss = (near**12 - energy - near**6).float().mean() + energy.float().clamp(max=1e4).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
