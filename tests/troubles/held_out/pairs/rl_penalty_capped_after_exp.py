"""The k3 estimate of the divergence is capped after its exponential: the value is finite, and its gradient is 0 times infinity.

area: reinforcement learning
cause: exp-overflow
operator: exp
fix: clamp | max
shows: nan loss
source: OpenRLHF/OpenRLHF PR#1335, THUDM/slime PR#2198, radixark/miles PR#1363
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Linear(8, 12)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
for step in range(2):
    states, actions = torch.randn(16, 8), torch.randint(0, 12, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = policy(states)
    new = torch.log_softmax(logits.float(), -1).gather(1, actions[:, None])[:, 0]
    reference = new.detach() + torch.randn(16)
    reference[5] += 120
    log_ratio = reference - new
    log_ratio = log_ratio.clamp(-20, 20)  # mended
    k3 = log_ratio.exp() - 1 - log_ratio  # here
    loss = k3.clamp(max=10.0).mean()
    loss.backward()
    bad = policy.weight.grad.isnan().any()
    optimizer.step()
print(json.dumps({"loss": float("nan") if bad else loss.item()}))
