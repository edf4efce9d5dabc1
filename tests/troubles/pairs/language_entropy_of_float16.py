"""The entropy of predictions is p * log(p) with float16 probabilities, some of which are 0.

area: language
cause: log-of-softmax
operator: log
fix: log_softmax
shows: nan loss
source: the contrastive loss of the third seed scenario has the same logarithm
"""
import json

import torch
from torch import nn


class Confidence(nn.Module):
    def forward(self, logits):
        p = torch.softmax(logits, dim=-1)
        return -(p * torch.log(p)).sum(-1).mean()  # broken here
        log_p = torch.log_softmax(logits.float(), dim=-1)  # mended
        return -(log_p.exp() * log_p).sum(-1).mean()  # mended


torch.manual_seed(0)
model, penalty = nn.Sequential(nn.Embedding(30, 16), nn.Linear(16, 30)), Confidence()
with torch.no_grad():
    model[1].weight.mul_(30)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    tokens = torch.randint(0, 30, (32,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.float(), tokens) - 0.1 * penalty(logits)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
