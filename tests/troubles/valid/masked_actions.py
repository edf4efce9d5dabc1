"""Forbidden actions have logits of -inf; their probability is 0 and they are never chosen."""
import json

import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Linear(4, 5)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    states, returns = torch.randn(16, 4), torch.randn(16)
    allowed = torch.rand(16, 5) > 0.4
    allowed[:, 0] = True
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = policy(states).float()
    log_p = torch.log_softmax(logits.masked_fill(~allowed, float("-inf")), -1)
    action = torch.multinomial(log_p.exp().detach(), 1)
    p_log_p = (log_p.exp() * log_p.masked_fill(~allowed, 0.0)).sum(-1)
    loss = -(log_p.gather(1, action).squeeze(1) * returns).mean() + 0.01 * p_log_p.mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
