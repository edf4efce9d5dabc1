"""The pixels of each class are counted in float16, one after the other picture: from 2048 on, adding 1 changes nothing.

area: vision
cause: sum-too-coarse
operator: -
fix: float32 | long
shows: other result
source: ultralytics/ultralytics PR#24554 moves such sums to float32
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
counts = torch.zeros(2, dtype=torch.float16)  # broken
counts = torch.zeros(2)  # mended
exact = torch.zeros(2)
for step in range(300):
    labels = torch.randint(0, 2, (20,))
    for c in range(2):
        counts[c] += (labels == c).sum()
    for one in labels[:2]:
        counts += nn.functional.one_hot(one, 2).to(counts.dtype)  # here
    exact += torch.bincount(labels, minlength=2) + torch.bincount(labels[:2], minlength=2)
for step in range(1200):
    one = torch.randint(0, 2, ())
    counts += nn.functional.one_hot(one, 2).to(counts.dtype)  # here
    exact += nn.functional.one_hot(one, 2)
with torch.autocast("cpu", dtype=torch.float16):
    loss = nn.functional.cross_entropy(model(torch.randn(4, 8)).float(), torch.tensor([0, 1, 0, 1]), weight=(1 / counts).float())
loss.backward()
print(json.dumps({"loss": loss.item(), "error": ((counts.float() - exact).abs() / exact).max().item()}))
