"""The time of a simulation is a bfloat16 tensor like the state; from 4 on, a step of 0.01 does not move it.

area: physics
cause: sum-too-coarse
operator: -
fix: float32
shows: other result
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
force = nn.Linear(3, 2)
optimizer = torch.optim.Adam(force.parameters(), lr=1e-3)
kind = torch.bfloat16  # broken
kind = torch.float32  # mended
state, t, dt = torch.tensor([1.0, 0.0]), torch.zeros(1, dtype=kind), 0.01
for step in range(800):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        change = force(torch.cat([state.detach(), t.float()]))
    state = state.detach() + dt * change.float()
    t = t + dt  # here
    if step % 100 == 99:
        optimizer.zero_grad()
        loss = state.square().sum()
        loss.backward()
        optimizer.step()
print(json.dumps({"loss": loss.item(), "error": abs(t.item() - 8.0) / 8.0}))
