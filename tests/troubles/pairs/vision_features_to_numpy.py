"""Embeddings that were computed in bfloat16 are handed to NumPy, which has no such type.

area: vision
cause: dtype-mismatch
operator: -
fix: float()
shows: error
ampc: runs
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    out = model(torch.rand(4, 3, 8, 8))
array = out.cpu().numpy()  # broken here
array = out.float().cpu().numpy()  # mended
print(json.dumps({"loss": float(array.mean())}))
