"""The teacher's weights are a float16 copy, and its momentum of 0.9996 is a float16 tensor, which is rounded to 0.9995 or 1.

area: self-supervision
cause: weights-too-coarse
also: rate-too-coarse
operator: -
fix: float32
shows: weights do not move
source: PaddlePaddle/PaddleMIX PR#515, NUS-HPC-AI-Lab/VideoSys PR#6
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
student, teacher = nn.Linear(8, 8), nn.Linear(8, 8)
teacher.load_state_dict(student.state_dict())
for p in teacher.parameters():
    p.requires_grad_(False)
    nn.init.uniform_(p, 0.5, 0.99)
kind = torch.float16  # broken
kind = torch.float32  # mended
teacher.to(kind)
start = teacher.weight.float().clone()
momentum = torch.tensor(0.9999, dtype=kind)
optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(20):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = (student(x).float() - teacher(x.to(kind)).float()).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    with torch.no_grad():
        for t, s in zip(teacher.parameters(), student.parameters()):
            t.copy_(momentum * t + (1 - momentum) * s.to(kind))  # here
way = (student.weight - start).norm().item() * 1e-4 * 20
print(json.dumps({"loss": loss.item(), "moved": (teacher.weight.float() - start).norm().item() / way}))
