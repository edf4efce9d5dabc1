"""Float16 logits are divided by a low temperature and become infinite; multinomial refuses the nan of their softmax.

area: language
cause: quotient-overflow
operator: div
fix: float() | float32
shows: error
source: vllm-project/vllm#1623, QwenLM/Qwen#276 ("probability tensor contains either inf, nan or element < 0")
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(30, 16), nn.Linear(16, 30))
with torch.no_grad():
    model[1].weight.mul_(400)
token, written = torch.tensor([3]), []
for step in range(5):
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        logits = model(token)
    p = torch.softmax(logits / 0.002, -1)  # broken here
    p = torch.softmax(logits.float() / 0.002, -1)  # mended
    token = torch.multinomial(p.float(), 1)[0]
    written.append(token.item())
print(json.dumps({"loss": 0.0, "written": len(written)}))
