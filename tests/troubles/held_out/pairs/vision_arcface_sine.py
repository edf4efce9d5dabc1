"""The sine of the angle margin is a root of 1 - cosine squared, of images that lie on their class centre.

area: vision
cause: root-at-zero
operator: sqrt
fix: eps | clamp | under the root | add
shows: nan loss
source: ronghuaiyang/arcface-pytorch#91, #81
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 8, bias=False)
nn.init.eye_(model.weight)
centres = nn.functional.normalize(torch.eye(8)[:3], dim=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    y = torch.arange(6) % 3
    x = centres[y]
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = nn.functional.normalize(model(x).float(), dim=1)
        cosine = (features @ centres.t()).float().clamp(-1, 1)
        sine = torch.sqrt(1.0 - cosine.pow(2))  # broken here
        sine = torch.sqrt((1.0 - cosine.pow(2)).clamp(min=1e-6))  # mended
        shifted = cosine * 0.88 - sine * 0.48
        loss = nn.functional.cross_entropy(8 * shifted, y)
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item() + model.weight.sum().item()}))
