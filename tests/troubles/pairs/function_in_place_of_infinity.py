"""A Function writes its result into the input's memory and divides in place by a count that may be 0.

area: custom function
cause: division-by-zero
operator: div | div_
fix: epsilon | + eps | where( | clamp
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn


class MaskedMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mask):
        count = mask.sum(1, keepdim=True).to(x.dtype)
        count = count.clamp(min=1)  # mended
        ctx.save_for_backward(mask, count)
        total = (x * mask[..., None]).sum(1)
        total.div_(count)  # here
        return total

    @staticmethod
    def backward(ctx, grad):
        mask, count = ctx.saved_tensors
        return (grad / count)[:, None] * mask[..., None], None


torch.manual_seed(0)
embed, head = nn.Embedding(20, 8), nn.Linear(8, 2)
optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    tokens = torch.randint(1, 20, (6, 5))
    tokens[2] = 0
    optimizer.zero_grad()
    mean = MaskedMean.apply(embed(tokens), (tokens > 0).float())
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(head(mean).float(), torch.arange(6) % 2)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
