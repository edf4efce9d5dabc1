"""Rotary positions are counted in bfloat16, which has no integers between 256 and 258: neighbours get one angle.

area: language
cause: count-too-coarse
operator: -
fix: float32
shows: other result
source: huggingface/transformers PR#29285, EleutherAI/gpt-neox#1003, KellerJordan/modded-nanogpt#39
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
length, width = 1024, 32
frequency = 1.0 / 10000 ** (torch.arange(0, width, 2).float() / width)
positions = torch.arange(length, dtype=torch.bfloat16)  # broken here
positions = torch.arange(length, dtype=torch.float32)  # mended
angles = positions[:, None].float() * frequency
exact = torch.arange(length)[:, None] * frequency
x = torch.randn(length, width)


def turn(x, angles):
    a, b = x[:, ::2], x[:, 1::2]
    return torch.stack([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1).flatten(1)


model = nn.Linear(width, width)
with torch.autocast("cpu", dtype=torch.bfloat16):
    queries = turn(model(x).float(), angles)
right = turn(model(x), exact)
queries.sum().backward()
print(json.dumps({"error": ((queries - right).norm() / right.norm()).item()}))
