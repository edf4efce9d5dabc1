"""Weights are rounded to eight bits and back, with int8 in between and a float16 scale."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model, head = nn.Linear(16, 16), nn.Linear(16, 2)
optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.01)
for step in range(2):
    x, y = torch.randn(8, 16), torch.randint(0, 2, (8,))
    optimizer.zero_grad()
    scale = (model.weight.detach().abs().max() / 127).half()
    whole = (model.weight.detach() / scale.float()).round().clamp(-127, 127).to(torch.int8)
    back = whole.half() * scale
    weight = model.weight + (back.float() - model.weight).detach()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(head(nn.functional.linear(x, weight)).float(), y)
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
