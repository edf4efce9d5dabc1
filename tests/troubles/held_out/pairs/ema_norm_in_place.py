"""A clipping limit follows the norms of the gradients, and takes in the infinity of the first steps, which the scaler skips.

area: ema
cause: step-not-skipped
operator: -
fix: skipped | last_step | finite
shows: other result
source: dbolya/yolact#359 for an average that takes an infinity in
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
limit = torch.tensor(1.0)
for step in range(20):
    x, y = torch.randn(16, 8), torch.randint(0, 3, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 2 * limit.item())
    if torch.isfinite(norm):  # mended
        limit.mul_(0.95).add_(norm, alpha=0.05)  # mended
    limit.mul_(0.95).add_(norm, alpha=0.05)  # broken here
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item(), "error": float(not limit.isfinite())}))
