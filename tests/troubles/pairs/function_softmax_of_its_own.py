"""A memory-saving softmax Function takes exp of float16 scores without subtracting the largest.

area: custom function
cause: softmax-by-hand
also: exp-overflow
operator: exp
fix: softmax
shows: nan loss
source: facebookresearch/xformers PR#98; hand-written attention Functions
"""
import json

import torch
from torch import nn


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.float() - x.float().amax(-1, keepdim=True)  # mended
        grown = torch.exp(x)  # here
        p = grown / grown.sum(-1, keepdim=True)  # here
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx, grad):
        (p,) = ctx.saved_tensors
        return p * (grad - (grad * p).sum(-1, keepdim=True))


torch.manual_seed(0)
embed, query, head = nn.Embedding(20, 16), nn.Linear(16, 16), nn.Linear(16, 20)
with torch.no_grad():
    query.weight.mul_(12)
optimizer = torch.optim.SGD([*embed.parameters(), *query.parameters(), *head.parameters()], lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    tokens = torch.randint(0, 20, (3, 6))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        x = embed(tokens)
        scores = query(x) @ x.transpose(1, 2)
    mixed = Softmax.apply(scores).float() @ x
    loss = nn.functional.cross_entropy(head(mixed).flatten(0, 1), tokens.flatten())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
