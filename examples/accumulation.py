"""Gradients of four micro-batches make one step. They stay scaled, by one scale, until all are there; then they are divided and clipped."""

import ampc as torch

MICRO = 4

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).to(device)
optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler(device)
data = [(torch.randn(32, 32, device=device), torch.randint(0, 8, (32,), device=device)) for _ in range(8)]

steps, losses = 0, []
for _epoch in range(6):
    for i, (x, y) in enumerate(data):
        with torch.autocast(device, dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x), y) / MICRO
        scaler.scale(loss).backward()
        losses.append(MICRO * loss.detach())  # not .item(), which would wait for a GPU
        if (i + 1) % MICRO == 0:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            steps += 1
first, last = (torch.stack(some).mean().item() for some in (losses[:8], losses[-8:]))
print(f"{len(losses)} micro-batches, {steps} steps, loss {first:.4f} -> {last:.4f}")
assert steps == 12 and last < first
