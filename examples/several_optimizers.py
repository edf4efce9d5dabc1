"""Two models, two losses, two optimizers, one GradScaler: each optimizer has a step, update() comes once, after the last."""

import ampc as torch

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
generator = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)).to(device)
critic = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.LeakyReLU(0.2), torch.nn.Linear(32, 1)).to(device)
optimizers = [torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.5, 0.9)) for model in (generator, critic)]
scaler = torch.amp.GradScaler(device)
bce = torch.nn.functional.binary_cross_entropy_with_logits

for _step in range(60):
    real = torch.randn(128, 2, device=device) * 0.3 + 1
    for optimizer in optimizers:
        optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16):
        fake = generator(torch.randn(128, 8, device=device))
        judged_real, judged_fake = critic(real), critic(fake.detach())
        critic_loss = bce(judged_real, torch.ones_like(judged_real)) + bce(judged_fake, torch.zeros_like(judged_fake))
        judged = critic(fake)
        generator_loss = bce(judged, torch.ones_like(judged))
    scaler.scale(generator_loss).backward()
    optimizers[1].zero_grad()  # what the generator's loss left in the critic
    scaler.scale(critic_loss).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
print(f"critic {critic_loss.item():.3f}, generator {generator_loss.item():.3f}, scale {scaler.get_scale():g}")
assert abs(fake.float().mean().item() - 1) < 0.6  # it has moved to where the data is
