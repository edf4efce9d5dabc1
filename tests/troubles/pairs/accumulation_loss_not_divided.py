"""The losses of four micro-batches are added without being divided by four: the gradient is four times that of the whole batch.

area: accumulation
cause: loss-not-divided
operator: -
fix: divide
shows: other result
source: karpathy/nanoGPT#168, huggingface/transformers#37766
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(12, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
x, y = torch.randn(32, 12), torch.randint(0, 4, (32,))
whole = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), model.weight)[0]
accumulate = 4
for i, (a, b) in enumerate(zip(x.chunk(accumulate), y.chunk(accumulate))):
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(a).float(), b)  # broken here
        loss = nn.functional.cross_entropy(model(a).float(), b) / accumulate  # mended
    scaler.scale(loss).backward()
    if (i + 1) % accumulate == 0:
        scaler.unscale_(optimizer)
        error = ((model.weight.grad - whole).norm() / whole.norm()).item()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
print(json.dumps({"loss": loss.item(), "error": error}))
