"""The hidden values of a feed-forward block grow beyond float16 in its second product, as in T5 checkpoints that were trained in bfloat16.

area: language
cause: product-overflow
operator: linear | addmm | mm
fix: bfloat16 | smaller | float()
shows: nan loss
advise: in float16 losses are not finite
source: huggingface/transformers#4586, #9295; huggingface PR#10956
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
embed, up, down, norm, head = nn.Embedding(30, 32), nn.Linear(32, 128), nn.Linear(128, 32), nn.LayerNorm(32), nn.Linear(32, 30)
with torch.no_grad():
    up.weight.mul_(400)
    down.weight.mul_(4000)
model = nn.ModuleList([embed, up, down, norm, head])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
dtype = torch.float16  # broken
dtype = torch.bfloat16  # mended
for step in range(3):
    tokens = torch.randint(0, 30, (4, 8))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=dtype):
        x = embed(tokens)
        hidden = torch.relu(up(x))
        x = x + down(hidden)  # here
        loss = nn.functional.cross_entropy(head(norm(x.float())).flatten(0, 1).float(), tokens.flatten())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
