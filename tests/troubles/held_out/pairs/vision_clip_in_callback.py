"""A trainer takes the function that clips as an argument, and calls it between backward and the step.

area: vision
cause: clip-scaled-gradients
operator: -
fix: unscale_
shows: other result
source: catalyst-team/catalyst#1319, TorchSSL/TorchSSL PR#59, milesial/Pytorch-UNet#468
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
import functools

model = nn.Conv2d(1, 4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
clip = functools.partial(nn.utils.clip_grad_value_, clip_value=0.05)


class Trainer:
    def __init__(self, clip):
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
        self.clip = clip

    def step(self, loss, parameters):
        self.scaler.scale(loss).backward()
        if self.clip is not None:
            self.scaler.unscale_(optimizer)  # mended
            self.clip(parameters)  # here
        self.scaler.step(optimizer)
        self.scaler.update()
        optimizer.zero_grad()


before = model.weight.detach().clone()
trainer = Trainer(clip)
for i in range(3):
    x, y = torch.randn(8, 1, 6, 6), torch.randint(0, 4, (8,))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).mean((2, 3)).float(), y)
    trainer.step(loss, list(model.parameters()))
moved = (model.weight.detach() - before).norm().item()
print(json.dumps({"loss": loss.item(), "error": float(moved < 1e-3)}))
