"""Accuracy per class: classes without samples divide 0 by 0, and nan_to_num makes them 0; nothing is trained by it."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 6)
with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
    guess = model(torch.randn(32, 8)).argmax(1)
labels = torch.randint(0, 4, (32,))
right = torch.bincount(labels[guess == labels], minlength=6).float()
each = torch.nan_to_num(right / torch.bincount(labels, minlength=6).float(), nan=0.0)
print(json.dumps({"loss": each.mean().item()}))
