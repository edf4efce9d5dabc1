"""The accumulated gradients are clipped after every micro-batch, while they are scaled.

area: accumulation
cause: clip-scaled-gradients
operator: -
fix: unscale_
shows: weights do not move
source: EveryDream2 PR#175, k2-fsa/icefall PR#2081
"""
import json

import torch
from torch import nn


class Trainer:
    def __init__(self, model, every):
        self.model, self.every = model, every
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2048.0)

    def micro_batch(self, i, x, y):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(self.model(x).float(), y) / self.every
        self.scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)  # broken here
        if i % self.every == self.every - 1:
            self.scaler.unscale_(self.optimizer)  # mended
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)  # mended
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


torch.manual_seed(0)
trainer = Trainer(nn.Linear(12, 4), 2)
before = trainer.model.weight.detach().clone()
for i in range(8):
    loss = trainer.micro_batch(i, torch.randn(8, 12), torch.randint(0, 4, (8,)))
print(json.dumps({"loss": loss, "moved": (trainer.model.weight - before).norm().item() / 0.04}))
