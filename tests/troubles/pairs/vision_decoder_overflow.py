"""The decoder of a latent model was trained in bfloat16, and its convolutions leave float16's range.

area: vision
cause: product-overflow
operator: convolution
fix: bfloat16
shows: nan loss
advise: in float16 losses are not finite
source: AUTOMATIC1111/stable-diffusion-webui#6723, Comfy-Org/ComfyUI#1401, zai-org/CogVideo#559
"""
import json

import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1) for _ in range(4)])
        self.norm, self.out = nn.GroupNorm(2, 8), nn.Conv2d(8, 3, 1)

    def forward(self, z):
        for block in self.blocks:
            z = z + block(z)  # here
        return self.out(self.norm(z.float()))


torch.manual_seed(0)
decoder = Decoder()
with torch.no_grad():
    for block in decoder.blocks:
        block.weight.mul_(60)
kind = torch.float16  # broken
kind = torch.bfloat16  # mended
optimizer = torch.optim.SGD(decoder.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=kind):
        loss = decoder(torch.randn(2, 8, 8, 8)).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
