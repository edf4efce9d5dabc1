"""The whole model is made float16, as for inference, and trained with a GradScaler, which refuses float16 gradients.

area: vision
cause: half-parameters
operator: -
fix: float32 | .half()
shows: error
source: bitsandbytes#945, Chinese-Vicuna#168
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
model = model.half()  # broken here
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(3):
    images, labels = torch.randn(4, 3, 8, 8), torch.randint(0, 10, (4,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(images).float(), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
