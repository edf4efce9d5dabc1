"""A checkpoint lacks the scaler, so the resumed training begins at the initial scale and skips its first steps.

area: checkpoint
cause: scaler-not-saved
operator: -
fix: scaler.state_dict
shows: all steps skipped
source: huggingface/transformers#11663, facebookresearch/detectron2#3686, ultralytics/ultralytics#22189
"""
import io
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(scaler, steps):
    skipped = 0
    for step in range(steps):
        x, y = torch.randn(8, 16) * 30, torch.randint(0, 4, (8,))
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x).float(), y) * 100
        scaler.scale(loss).backward()
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < scale
    return skipped


scaler = torch.amp.GradScaler("cpu", init_scale=2.0**28)
train(scaler, 30)
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)  # broken here
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}, file)  # mended
file.seek(0)
saved = torch.load(file)
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**28)
scaler.load_state_dict(saved["scaler"])  # mended
print(json.dumps({"skipped": train(scaler, 4), "steps": 4}))
