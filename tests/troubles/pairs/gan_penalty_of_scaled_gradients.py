"""A gradient penalty is computed from gradients of scaled outputs that nobody divides: the norm is the scale times too large.

area: gan
cause: penalty-of-scaled
operator: -
fix: divide | unscale | get_scale
shows: other result
source: pytorch/pytorch PR#44667; lucidrains/stylegan2-pytorch#100
"""
import json

import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    real, fake = torch.randn(16, 8), torch.randn(16, 8) + 1
    between = (real + torch.rand(16, 1) * (fake - real)).requires_grad_()
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        score = critic(between).sum()
    (grad,) = torch.autograd.grad(scaler.scale(score), between, create_graph=True)
    grad = grad / scaler.get_scale()  # mended
    penalty = (grad.norm(dim=1) - 1).square().mean()  # here
    with torch.autocast("cpu", dtype=torch.float16):
        loss = critic(fake).mean() - critic(real).mean()
    scaler.scale(loss + 10 * penalty).backward()
    (plain,) = torch.autograd.grad(critic(between).sum(), between)
    right = (plain.norm(dim=1) - 1).square().mean()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"error": (abs(penalty - right) / right).item()}))
