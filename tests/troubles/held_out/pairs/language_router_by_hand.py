"""A router divides exponentials of its logits, without their largest, in a mixture of experts.

area: language
cause: softmax-by-hand
also: exp-overflow
operator: exp
fix: softmax
shows: nan loss
source: a common pattern; no thread of it was read
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
embed, router, experts = nn.Embedding(20, 8), nn.Linear(8, 4), nn.Linear(8, 4 * 8)
head = nn.Linear(8, 20)
optimizer = torch.optim.SGD([*embed.parameters(), *router.parameters(), *experts.parameters(), *head.parameters()], lr=0.01)
with torch.no_grad():
    router.weight.mul_(200)
for step in range(2):
    tokens = torch.randint(0, 20, (32,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = embed(tokens)
        logits = router(x).float()
        weights = torch.exp(logits)  # broken here
        gates = weights / weights.sum(-1, keepdim=True)  # broken here
        gates = torch.softmax(logits, -1)  # mended
        out = (experts(x).view(-1, 4, 8) * gates[:, :, None]).sum(1)
        loss = nn.functional.cross_entropy(head(out).float(), tokens)
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
