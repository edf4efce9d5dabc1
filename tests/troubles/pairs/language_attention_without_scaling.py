"""Attention scores are not divided by the root of their width; with large weights they leave float16's range.

area: language
cause: product-overflow
operator: bmm | matmul | baddbmm
fix: bfloat16 | smaller | float()
shows: nan loss
advise: in float16 losses are not finite
source: huggingface/transformers#4586 (T5 in fp16)
"""
import json

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.query(x), self.key(x), self.value(x)
        scores = q @ k.transpose(-2, -1)  # broken here
        scores = (q / 512) @ (k / 512).transpose(-2, -1)  # mended
        return torch.softmax(scores - scores.amax(-1, keepdim=True), -1) @ v


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(40, 64), Attention(64), nn.Linear(64, 40))
with torch.no_grad():
    model[1].query.weight.mul_(400)
    model[1].key.weight.mul_(400)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    tokens = torch.randint(0, 40, (2, 12))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
