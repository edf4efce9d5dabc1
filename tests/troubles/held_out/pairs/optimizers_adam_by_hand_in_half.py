"""An Adam that is written by hand for float16 weights has an epsilon of 1e-8, which is 0, and a gradient that is 0.

area: optimizers
cause: epsilon-too-small
also: division-by-zero | half-parameters
operator: div
fix: eps | 1e- | float32 | larger
shows: nan loss
source: google-deepmind/optax#1754, PR#1769; afiaka87/glide-finetune PR#6; keras-team/keras#11860
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
embed = nn.Embedding(10, 4).half()
state = {"m": torch.zeros_like(embed.weight), "v": torch.zeros_like(embed.weight)}
eps = 1e-8  # broken
eps = 1e-4  # mended
for step in range(1, 4):
    tokens = torch.randint(0, 5, (8,))
    loss = embed(tokens).float().square().mean()
    loss.backward()
    with torch.no_grad():
        g, m, v = embed.weight.grad, state["m"], state["v"]
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.999).add_(g * g, alpha=0.001)
        update = m / (v.sqrt() + eps)  # here
        embed.weight.sub_(0.01 * update)
    embed.weight.grad = None
print(json.dumps({"loss": loss.item() + embed.weight.float().sum().item()}))
