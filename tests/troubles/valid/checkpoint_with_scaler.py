"""Everything is saved, the scaler too, and the training goes on from there."""
import io
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)


def steps(n):
    for _ in range(n):
        x, y = torch.randn(16, 8), torch.randint(0, 2, (16,))
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return loss.item()


steps(3)
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "amp": scaler.state_dict()}, file)
file.seek(0)
state = torch.load(file)
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])
scaler.load_state_dict(state["amp"])
print(json.dumps({"loss": steps(3)}))
