"""A block is checkpointed by hand and computed again in backward, outside of autocast: its values are of another precision.

area: checkpoint
cause: recomputed-in-other-precision
operator: -
fix: autocast
shows: other result
source: pytorch/pytorch#141896, Lightning-AI/pytorch-lightning#19267, hiyouga/LLaMA-Factory#6438
"""
import json

import torch
from torch import nn

kinds = []


class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, block, x):
        ctx.block, ctx.on = block, torch.is_autocast_enabled("cpu")
        ctx.save_for_backward(x)
        with torch.no_grad():
            out = block(x)
        kinds.append(out.dtype)
        return out

    @staticmethod
    def backward(ctx, grad):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            out = ctx.block(x.to(ctx.block.weight.dtype))  # broken here
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=ctx.on):  # mended
                out = ctx.block(x)  # mended
        kinds.append(out.dtype)
        torch.autograd.backward(out, grad.to(out.dtype))
        return None, x.grad


torch.manual_seed(0)
first, block, head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)
optimizer = torch.optim.SGD([*first.parameters(), *block.parameters(), *head.parameters()], lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(head(Again.apply(block, first(torch.randn(16, 8)))).float(), torch.arange(16) % 2)
    loss.backward()
    optimizer.step()
print(json.dumps({"loss": loss.item(), "error": float(len(set(kinds)) - 1)}))
