"""A function of one's own by the name of an operator, and a scaler of data by the name of scaler."""
import json

import torch
from torch import nn

torch.manual_seed(0)
class Standard:
    def fit(self, x):
        self.mean, self.deviation = x.mean(0), x.std(0)
        return self

    def scale(self, x):
        return (x - self.mean) / self.deviation


data = torch.randn(64, 8) * 3 + 1
scaler = Standard().fit(data)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x, y = scaler.scale(data[step * 16:step * 16 + 16]), torch.randint(0, 2, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print(json.dumps({"loss": loss.item()}))
