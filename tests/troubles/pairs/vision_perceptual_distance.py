"""The distance of features is the root of the sum of squares; for equal pictures it is 0, and its gradient 0 times infinity.

area: vision
cause: norm-by-hand
operator: sqrt
fix: vector_norm | epsilon
shows: nan loss
source: pytorch/pytorch#2421, huggingface/sentence-transformers PR#4033
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model, features = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 8, 3)
with torch.no_grad():
    model.weight.copy_(torch.eye(3)[:, :, None, None])
    model.bias.zero_()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
images = torch.rand(4, 3, 8, 8)
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a, b = features(model(images.bfloat16().float()).bfloat16()).flatten(1), features(images).flatten(1)
    apart = (a - b).float()
    loss = torch.sqrt((apart**2).sum(1)).mean()  # broken here
    loss = torch.linalg.vector_norm(apart, dim=1).mean()  # mended
    loss.backward()
    optimizer.step()
with torch.no_grad():
    loss = model(images).square().mean()
print(json.dumps({"loss": loss.item()}))
