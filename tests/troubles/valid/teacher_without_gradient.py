"""Distillation: the teacher is a float16 model under no_grad, the student has a scaler."""
import json

import torch
from torch import nn

torch.manual_seed(0)
teacher, student = nn.Linear(8, 4).half().eval(), nn.Linear(8, 4)
optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(3):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    with torch.no_grad():
        aim = torch.softmax(teacher(x.half()).float() / 2, -1)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.kl_div(torch.log_softmax(student(x).float() / 2, -1), aim, reduction="batchmean")
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
