"""unscale_() and clipping run in every iteration, but update() only with the step, so the second unscale_() fails.

area: accumulation
cause: unscale-twice
also: unscale-before-accumulation
operator: -
fix: once | last
shows: error
source: microsoft/Swin-Transformer#311, huggingface/accelerate#641, huggingface/transformers#23905
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 3)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


class Scaler:
    """A loss scaler with the norm of the gradients, as in timm."""

    def __init__(self):
        self.inner = torch.amp.GradScaler("cpu", init_scale=128.0)

    def __call__(self, loss, step):
        self.inner.scale(loss).backward()
        self.inner.unscale_(optimizer)  # broken here
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)  # broken
        if step:
            self.inner.unscale_(optimizer)  # mended
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)  # mended
            self.inner.step(optimizer)
            self.inner.update()
            optimizer.zero_grad()


scaler = Scaler()
for i in range(6):
    x, y = torch.randn(8, 8), torch.randint(0, 3, (8,))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x), y) / 3
    scaler(loss, i % 3 == 2)
print(json.dumps({"loss": loss.item()}))
