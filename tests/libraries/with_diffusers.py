"""diffusers: a U-Net that learns to remove noise, then makes a sample."""

import numpy as np
import torch
from start import main, normal, pictures, script, train


@script("diffusers", "UNet2D, DDPM and DDIM")
def unet2d(seed):
    from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel

    model = UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=4,
                        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    schedule = DDPMScheduler(num_train_timesteps=100)

    def loss_of(rng):
        clean, noise = pictures(rng, 4, 1, 8, 8)[0], normal(rng, 4, 1, 8, 8)
        times = torch.from_numpy(rng.integers(0, 100, 4))
        return torch.nn.functional.mse_loss(model(schedule.add_noise(clean, noise, times), times).sample, noise)

    losses = train(model, seed, loss_of, 24, lr=2e-3)
    steps = DDIMScheduler(num_train_timesteps=100)
    steps.set_timesteps(5)
    x = normal(np.random.default_rng(seed), 1, 1, 8, 8)
    with torch.no_grad():
        for t in steps.timesteps:
            x = steps.step(model(x, t).sample, t, x).prev_sample
    return losses + [float(x.mean()), float(x.std())]


if __name__ == "__main__":
    main()
