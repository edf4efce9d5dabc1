"""The Gram matrix of a style loss adds up the products of all positions in float16, and divides by their number afterwards.

area: vision
cause: product-overflow
operator: bmm | matmul | baddbmm
fix: bfloat16 | float() | smaller
shows: nan loss
advise: in float16 losses are not finite
source: NVIDIA/apex#402, jcjohnson/neural-style#425
"""
import json

import torch
from torch import nn


def gram(features):
    n, c, h, w = features.shape
    flat = features.reshape(n, c, h * w)
    return flat @ flat.transpose(1, 2) / (c * h * w)  # broken here
    with torch.autocast("cpu", enabled=False):  # mended
        return flat.float() @ flat.float().transpose(1, 2) / (c * h * w)  # mended


torch.manual_seed(0)
encoder = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
picture, style = nn.Parameter(torch.rand(1, 3, 40, 40) * 60), torch.rand(1, 3, 40, 40) * 60
optimizer = torch.optim.Adam([picture], lr=0.5)
scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
with torch.no_grad():
    wanted = gram(encoder(style))
for step in range(3):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(gram(encoder(picture)).float(), wanted.float())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
