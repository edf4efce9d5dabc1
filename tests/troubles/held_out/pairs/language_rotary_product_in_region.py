"""Rotary angles are a product of frequencies and positions, which autocast computes in bfloat16.

area: language
cause: count-too-coarse
operator: -
fix: float32 | enabled=False
shows: other result
source: huggingface/transformers PR#29285, KellerJordan/modded-nanogpt#39
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
width, length = 16, 1500


class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / 10000 ** (torch.arange(0, width, 2).float() / width))

    def forward(self, positions):
        expanded = self.inv_freq[None, :, None].expand(positions.shape[0], -1, 1)
        with torch.autocast("cpu", enabled=False):  # mended
            freqs = (expanded.float() @ positions[:, None, :].float()).transpose(1, 2)  # mended
        freqs = (expanded.float() @ positions[:, None, :].float()).transpose(1, 2)  # broken here
        return freqs.cos(), freqs.sin()


rotary, model = Rotary(), nn.Linear(width // 2, width // 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
positions = torch.arange(length)[None]
with torch.autocast("cpu", dtype=torch.bfloat16):
    cos, sin = rotary(positions)
    loss = (model(torch.randn(1, length, width // 2)) * cos + sin).float().square().mean()
loss.backward()
optimizer.step()
right = (positions[0, :, None].double() * rotary.inv_freq.double()).cos()
print(json.dumps({"loss": loss.item(), "error": ((cos[0].double() - right).norm() / right.norm()).item()}))
