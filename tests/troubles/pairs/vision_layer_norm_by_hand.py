"""A normalisation by hand squares activations of some hundreds in float16; the variance is infinite, and the output 0.

area: vision
cause: power-overflow
operator: pow | square | mul
fix: float() | float32
shows: other result
source: implus/PytorchInsight#32; JingyunLiang/SwinIR#180
"""
import json

import torch
from torch import nn


class Norm(nn.Module):
    def forward(self, x):
        centred = x - x.mean(1, keepdim=True)
        variance = centred.pow(2).mean(1, keepdim=True)  # broken here
        variance = centred.float().pow(2).mean(1, keepdim=True)  # mended
        return centred / (variance + 1e-5).sqrt()


torch.manual_seed(0)
first, norm, last = nn.Linear(16, 32), Norm(), nn.Linear(32, 4)
with torch.no_grad():
    first.weight.mul_(1500)
optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    x = torch.randn(16, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        hidden = first(x)
    normal = norm(hidden)
    right = nn.functional.layer_norm(hidden.detach().float(), (32,))
    error = ((normal.detach().float() - right).norm() / right.norm()).item()
    loss = nn.functional.cross_entropy(last(normal.float()), torch.arange(16) % 4)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "error": error}))
