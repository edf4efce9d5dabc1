"""A gradient penalty under a GradScaler: gradients that autograd.grad makes of a scaled loss are scaled, and divided by hand."""

import ampc as torch

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).to(device)
optimizer, scaler = torch.optim.Adam(model.parameters(), lr=1e-2), torch.amp.GradScaler(device)
x = torch.randn(256, 16, device=device)
y = x[:, :1] * 2

first = None
for _step in range(40):
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(x), y)
    scaled = torch.autograd.grad(scaler.scale(loss), model.parameters(), create_graph=True)
    gradients = [g / scaler.get_scale() for g in scaled]  # outside autocast: in float32
    with torch.autocast(device, dtype=torch.float16):
        penalty = torch.linalg.vector_norm(torch.cat([g.flatten() for g in gradients]))
        total = loss + 0.1 * penalty
    scaler.scale(total).backward()
    scaler.step(optimizer)
    scaler.update()
    first = total.detach() if first is None else first
print(f"loss with penalty: {first.item():.4f} at first, {total.item():.4f} after 40 steps, |gradient| {penalty.item():.4f}")
assert total.item() < 0.5 * first.item()
