"""Label smoothing by hand: the logarithm of a softmax in float16, of every class.

area: language
cause: log-of-softmax
operator: log
fix: log_softmax | cross_entropy
shows: nan loss
source: the contrastive loss of the third seed scenario has the same logarithm
"""
import json

import torch
from torch import nn


def smoothed(logits, target, epsilon=0.1):
    p = nn.functional.softmax(logits, dim=-1)  # broken
    log_p = p.log()  # broken here
    log_p = nn.functional.log_softmax(logits.float(), dim=-1)  # mended
    right = log_p.gather(-1, target[:, None]).squeeze(-1)
    return -((1 - epsilon) * right + epsilon * log_p.mean(-1)).mean()


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(30, 32), nn.Linear(32, 30))
with torch.no_grad():
    model[1].weight.mul_(25)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    tokens = torch.randint(0, 30, (40,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(tokens)
    loss = smoothed(logits, tokens).float()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
