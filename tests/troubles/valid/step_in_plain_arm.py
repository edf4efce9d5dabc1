"""With amp the scaler steps, without it the optimizer itself does."""
import json

import torch
from torch import nn


def train(model, optimizer, batches, scaler=None):
    for x, y in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=scaler is not None):
            loss = nn.functional.cross_entropy(model(x).float(), y)
        if scaler is None:
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    return loss.item()


torch.manual_seed(0)
batches = [(torch.randn(16, 8), torch.randint(0, 2, (16,))) for _ in range(3)]
losses = []
for amp in (False, True):
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses.append(train(model, optimizer, batches, torch.amp.GradScaler("cpu", init_scale=256.0) if amp else None))
print(json.dumps({"loss": sum(losses)}))
