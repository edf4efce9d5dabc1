"""A contrastive loss takes exp, divides by the sum and takes the logarithm; a low temperature overflows exp.

area: self-supervision
cause: softmax-by-hand
also: log-of-softmax
operator: exp
fix: cross_entropy | log_softmax
shows: nan loss
source: the contrastive loss of the third seed scenario
"""
import json

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32))
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")


def contrastive(embeddings, temperature=0.01):
    embeddings = F.normalize(embeddings, dim=-1)
    similarity = embeddings @ embeddings.T / temperature
    grown = torch.exp(similarity)  # broken here
    share = grown / grown.sum(dim=-1, keepdim=True)  # broken
    return -torch.log(share.diagonal()).mean()  # broken
    return F.cross_entropy(similarity, torch.arange(len(similarity)))  # mended


for step in range(3):
    x = torch.randn(16, 20)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = contrastive(encoder(x))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
