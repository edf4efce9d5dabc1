"""A checkpoint was saved in float16, and one statistic beyond its range came back as infinity.

area: checkpoint
cause: cast-overflow
operator: cast
fix: can hold | float()
shows: other result
source: sd and T5 checkpoints converted by .half(); huggingface/transformers#9295
"""
import io
import json

import torch
from torch import nn

torch.manual_seed(0)
source = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
source[1].running_var[2] = 1e5
file = io.BytesIO()
torch.save({k: v.half() if v.is_floating_point() else v for k, v in source.state_dict().items()}, file)  # broken here
torch.save(source.state_dict(), file)  # mended
file.seek(0)
model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
model.load_state_dict(torch.load(file))
model[1].eval()
x = torch.randn(16, 8) * 100
with torch.no_grad():
    right = source.eval()(x)[:, 0]
with torch.autocast("cpu", dtype=torch.float16):
    loss = model(x).float().square().mean()
loss.backward()
print(json.dumps({"loss": loss.item(), "error": float(not torch.isfinite(model[1].running_var).all())}))
