"""A root-mean-square norm by hand squares the hidden states in float16; above 255 that is infinite, and the output 0.

area: language
cause: power-overflow
operator: pow | square | mul
fix: float() | float32
shows: other result
source: why LlamaRMSNorm casts to float32; huggingface/transformers PR#29285; pytorch/pytorch#174824
"""
import json

import torch
from torch import nn


class RootMeanSquare(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        mean = x.pow(2).mean(-1, keepdim=True)  # broken here
        mean = x.float().pow(2).mean(-1, keepdim=True)  # mended
        return self.weight * (x * torch.rsqrt(mean + 1e-6))


torch.manual_seed(0)
embed, norm, head = nn.Embedding(30, 32), RootMeanSquare(32), nn.Linear(32, 30)
up = nn.Linear(32, 32)
with torch.no_grad():
    up.weight.mul_(3000)
optimizer = torch.optim.AdamW([*embed.parameters(), *norm.parameters(), *head.parameters()], lr=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    tokens = torch.randint(0, 30, (24,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        hidden = up(embed(tokens))
    normal = norm(hidden)
    size = normal.detach().float().square().mean().sqrt().item()
    loss = nn.functional.cross_entropy(head(normal.float()), tokens)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "error": abs(size - 1)}))
