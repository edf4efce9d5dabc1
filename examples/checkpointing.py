"""Activations are computed again in backward rather than kept: less memory, the same gradients, dropout and autocast included."""

import ampc as torch
from ampc.utils.checkpoint import checkpoint

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
blocks = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Dropout(0.1)) for _ in range(12)]).to(device)
x = torch.randn(2048, 256, device=device)


def step(recompute):
    torch.manual_seed(1)
    blocks.zero_grad()
    torch.cuda.reset_peak_memory_stats()
    h = x
    with torch.autocast(device, dtype=torch.bfloat16):
        for block in blocks:
            h = checkpoint(block, h, use_reentrant=False) if recompute else block(h)
        loss = h.float().square().mean()
    loss.backward()
    return torch.cuda.max_memory_allocated(), [p.grad.clone() for p in blocks.parameters()]


step(False)  # what is made once, is made now
kept, gradients = step(False)
again, same = step(True)
print(f"peak {kept / 1e6:.1f} MB with all activations, {again / 1e6:.1f} MB with checkpoints")
assert again < 0.8 * kept and all(torch.equal(a, b) for a, b in zip(gradients, same))
