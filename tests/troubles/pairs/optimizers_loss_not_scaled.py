"""backward() is called on the loss itself, and scaler.step divides gradients that nobody multiplied.

area: optimizers
cause: loss-not-scaled
operator: -
fix: scaler.scale(loss)
shows: weights do not move
source: pytorch/pytorch#40907 and scripts that lost scaler.scale in a merge
"""
import json

import torch
from torch import nn


class Learner:
    def __init__(self, net):
        self.net, self.opt = net, torch.optim.SGD(net.parameters(), lr=0.1)
        self.grad_scaler = torch.amp.GradScaler("cpu", init_scale=8192.0)
        self.grad_scaler.scale(torch.zeros(()))

    def update(self, x, y):
        self.opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(self.net(x).float(), y)
        loss.backward()  # broken here
        self.grad_scaler.scale(loss).backward()  # mended
        self.grad_scaler.step(self.opt)  # here
        self.grad_scaler.update()
        return loss.item()


torch.manual_seed(0)
learner = Learner(nn.Linear(8, 2))
before = learner.net.weight.detach().clone()
for step in range(5):
    loss = learner.update(torch.randn(16, 8), torch.randint(0, 2, (16,)))
print(json.dumps({"loss": loss, "moved": (learner.net.weight - before).norm().item() / 0.05}))
