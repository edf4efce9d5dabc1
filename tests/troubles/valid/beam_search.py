"""Beams begin with scores of -inf, and of finished ones every next word but the end has -inf."""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(12, 16), nn.Linear(16, 12))
scores = torch.full((3,), float("-inf"))
scores[0] = 0.0
words = torch.zeros(3, dtype=torch.long)
with torch.no_grad():
    for step in range(5):
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(words).float()
        logits[:, 3] = float("-inf")
        total = scores[:, None] + torch.log_softmax(logits, -1)
        best, at = total.flatten().topk(3)
        words, scores = at % 12, best
print(json.dumps({"loss": -scores[0].item()}))
