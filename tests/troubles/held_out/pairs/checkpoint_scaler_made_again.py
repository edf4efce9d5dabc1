"""The state is loaded into a scaler, and the trainer makes another one afterwards.

area: checkpoint
cause: state-not-loaded
also: scaler-not-saved
operator: -
fix: load_state_dict | once
shows: all steps skipped
source: mosaicml/composer PR#1376, PolymathicAI/the_well#77, allenai/tango#154
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Trainer:
    def __init__(self):
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)

    def load(self, state):
        self.scaler.load_state_dict(state["scaler"])

    def fit(self, steps):
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)  # broken here
        skipped = 0
        for step in range(steps):
            x, y = torch.randn(8, 16) * 30, torch.randint(0, 4, (8,))
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(x).float(), y) * 100
            before = self.scaler.get_scale()
            self.scaler.scale(loss).backward()
            self.scaler.step(optimizer)
            self.scaler.update()
            skipped += self.scaler.get_scale() < before
        return skipped


first = Trainer()
first.fit(40)
second = Trainer()
second.load({"scaler": first.scaler.state_dict()})
print(json.dumps({"skipped": second.fit(4), "steps": 4}))
