"""An encoder layer of the library is fed values far beyond those that it was made for, in float16.

area: vision
cause: product-overflow
also: sum-overflow
operator: linear | addmm | mm | bmm | scaled_dot_product_attention | baddbmm
fix: bfloat16 | float() | smaller
shows: nan loss
source: aqlaboratory/openfold PR#222, JingyunLiang/SwinIR#180
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
patches = nn.Linear(48, 32)
layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=False)
head = nn.Linear(32, 3)
optimizer = torch.optim.AdamW([*patches.parameters(), *layer.parameters(), *head.parameters()], lr=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    images = torch.rand(2, 9, 48) * 60000
    images = images / 60000  # mended
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        hidden = patches(images)  # here
        out = layer(hidden).mean(1)  # here
        loss = nn.functional.cross_entropy(head(out).float(), torch.tensor([0, 1]))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
