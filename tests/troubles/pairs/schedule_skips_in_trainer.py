"""A trainer's own method steps the schedule after every batch, also after those that the scaler skipped.

area: schedule
cause: scheduler-after-skip
operator: -
fix: gate | skipped
shows: other result
source: huggingface/transformers PR#11144, Lightning-AI/pytorch-lightning#21339, huggingface/accelerate#1714
"""
import json

import torch
from torch import nn


class Trainer:
    def __init__(self, model):
        self.model, self.steps = model, 0
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=8, gamma=0.1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**38)

    def batch(self, x, y):
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(self.model(x).float(), y)
        self.scaler.scale(loss).backward()
        before = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        went = self.scaler.get_scale() >= before
        self.steps += went
        if went:  # mended
            self.scheduler.step()  # mended
        self.scheduler.step()  # broken here
        return loss.item()


torch.manual_seed(0)
trainer = Trainer(nn.Linear(8, 2))
while trainer.steps < 4:
    loss = trainer.batch(torch.randn(16, 8), torch.randint(0, 2, (16,)))
print(json.dumps({"loss": loss, "error": abs(trainer.optimizer.param_groups[0]["lr"] - 0.1) / 0.1}))
