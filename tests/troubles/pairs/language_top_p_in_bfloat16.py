"""Nucleus sampling adds up bfloat16 probabilities; the sum stops growing far below 1, and every word stays.

area: language
cause: sum-too-coarse
operator: -
fix: float32
shows: other result
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 4000)
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    logits = model(torch.randn(1, 16) * 0.3)
p, order = torch.softmax(logits.float(), -1).sort(descending=True)
exact = p.double().cumsum(-1)
p = p.bfloat16()  # broken
reached = torch.zeros((), dtype=p.dtype)
kept = 0
for one in p[0]:
    if reached > 0.9:
        break
    reached = reached + one  # here
    kept += 1
right = int((exact <= 0.9).sum())
print(json.dumps({"loss": reached.item(), "error": abs(kept - right) / right}))
