"""The z-loss of a language model takes log(exp(logits).sum()) in the logits' float16.

area: language
cause: logsumexp-by-hand
operator: exp
fix: logsumexp
shows: nan loss
source: z-loss as large language models add it; facebookresearch/xformers PR#98 keeps its kin in fp32
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 50))
with torch.no_grad():
    model[1].weight.mul_(20)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    tokens = torch.randint(0, 50, (4, 9))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(tokens[:, :-1])
    total = torch.log(torch.exp(logits).sum(-1))  # broken here
    total = torch.logsumexp(logits.float(), -1)  # mended
    loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten()) + 1e-4 * total.float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
