"""The region is opened for a GPU, and the model runs on the CPU: nothing is computed in 16 bits.

area: vision
cause: region-of-other-device
operator: -
fix: cpu
shows: other result
source: the warning "User provided device_type of 'cuda', but CUDA is not available"
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Conv2d(3, 8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with torch.autocast("cuda", dtype=torch.bfloat16):  # broken here
    out = model(torch.rand(2, 3, 8, 8))  # broken
with torch.autocast("cpu", dtype=torch.bfloat16):  # mended
    out = model(torch.rand(2, 3, 8, 8))  # mended
loss = out.float().square().mean()
loss.backward()
optimizer.step()
print(json.dumps({"loss": loss.item(), "error": float(out.dtype is not torch.bfloat16)}))
