"""Nucleus sampling adds up bfloat16 probabilities in float32, and a masked word has the score minus infinity."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 300)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(4, 16), torch.randint(1, 300, (4,))
with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = nn.functional.cross_entropy(model(x).float(), y)
loss.backward()
optimizer.step()
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    logits = model(x)
    logits[:, 0] = float("-inf")
    p, order = torch.softmax(logits, -1).bfloat16().sort(descending=True)
    reached = p.float().cumsum(-1)
    p = p.masked_fill(reached - p > 0.9, 0.0)
    word = order.gather(1, torch.multinomial(p.float(), 1))
print(json.dumps({"loss": loss.item(), "words": word.flatten().tolist()}))
