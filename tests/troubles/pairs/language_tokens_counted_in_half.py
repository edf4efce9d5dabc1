"""The loss is divided by the number of tokens, counted as a running sum of a float16 mask, which stops at 2048.

area: language
cause: sum-too-coarse
operator: -
fix: float32 | long
shows: other result
source: huggingface/transformers PR#35438 for how such counts divide losses; none in half precision was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 20))
seen = torch.zeros((), dtype=torch.float16)  # broken
seen = torch.zeros(())  # mended
exact, total = 0, 0.0
for step in range(600):
    mask = (torch.rand(8) > 0.2).to(seen.dtype)
    for m in mask:
        seen += m  # here
    exact += int(mask.sum())
    if step % 100 == 0:
        tokens = torch.randint(0, 20, (8,))
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(tokens).float(), tokens)
        loss.backward()
print(json.dumps({"loss": loss.item(), "error": abs(seen.item() - exact) / exact}))
