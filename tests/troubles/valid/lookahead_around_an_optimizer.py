"""An optimizer that wraps another one and steps it, stepped by the scaler."""
import json

import torch
from torch import nn

torch.manual_seed(0)
class Lookahead(torch.optim.Optimizer):
    def __init__(self, base, every=2, alpha=0.5):
        self.base, self.every, self.alpha, self.count = base, every, alpha, 0
        super().__init__(base.param_groups, {})
        self.param_groups = base.param_groups
        self.slow = [[p.detach().clone() for p in g["params"]] for g in self.param_groups]

    @torch.no_grad()
    def step(self, closure=None):
        self.base.step()
        self.count += 1
        if self.count % self.every == 0:
            for group, slow in zip(self.param_groups, self.slow):
                for p, s in zip(group["params"], slow):
                    s.lerp_(p, self.alpha)
                    p.copy_(s)


model = nn.Linear(8, 2)
optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.1))
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(4):
    x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
