"""The validation adds up the losses of its batches in bfloat16, into a new tensor each time.

area: vision
cause: sum-too-coarse
operator: -
fix: float32 | item()
shows: other result
source: jax-ml/ml_dtypes#63, pytorch/executorch PR#20089
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 4).bfloat16()


@torch.no_grad()
def validate(batches):
    total, exact = torch.zeros((), dtype=torch.bfloat16), 0.0  # broken
    total, exact = torch.zeros(()), 0.0  # mended
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x.bfloat16()), y)
        total = total + loss.to(total.dtype)  # here
        exact += loss.item()
    return total.item() / len(batches), exact / len(batches)


batches = [(torch.randn(4, 8), torch.randint(0, 4, (4,))) for _ in range(1500)]
mean, exact = validate(batches)
print(json.dumps({"loss": mean, "error": abs(mean - exact) / exact}))
