"""kornia: image operators that are differentiated, geometry, losses."""

import numpy as np
import torch
from start import fill, main, normal, pictures, script, train


@script("kornia", "filters and colours before a network")
def filters(seed):
    import kornia

    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 14 * 14, 4))

    def loss_of(rng):
        x, y = pictures(rng, 4, 3, 16, 16)
        x = kornia.filters.gaussian_blur2d(x, (3, 3), (1.0, 1.0)) + kornia.filters.sobel(x) + kornia.filters.laplacian(x, 3)
        x = kornia.color.rgb_to_hsv(torch.sigmoid(x)) + kornia.color.rgb_to_lab(torch.sigmoid(x)) / 100
        return torch.nn.functional.cross_entropy(net(x), y)

    return train(net, seed, loss_of, 20)


@script("kornia", "a picture is moved until it fits (warp_affine, SSIM)")
def fit(seed):
    import kornia

    class Move(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.angle, self.shift, self.scale = (torch.nn.Parameter(v) for v in (torch.zeros(1), torch.zeros(1, 2), torch.ones(1, 2)))

        def forward(self, x):
            centre = torch.tensor([[8.0, 8.0]])
            moved = kornia.geometry.get_rotation_matrix2d(centre, self.angle * 10, self.scale)
            moved = moved + torch.cat([torch.zeros(1, 2, 2), self.shift[..., None]], -1)
            return kornia.geometry.warp_affine(x, moved, (16, 16), padding_mode="border")

    move = Move()

    def pair(rng):
        x = kornia.filters.gaussian_blur2d(pictures(rng, 1, 1, 16, 16)[0], (5, 5), (2.0, 2.0))
        return x, kornia.geometry.rotate(x, torch.tensor([5.0]))

    def loss_of(rng):
        x, want = pair(rng)
        return kornia.losses.ssim_loss(move(x), want, 5) + torch.nn.functional.l1_loss(move(x), want)

    losses = train(move, seed, loss_of, 24, lr=1e-2)
    x, want = pair(np.random.default_rng(seed))
    with torch.no_grad():
        likeness = kornia.metrics.ssim(move(x), want, 11)
    return [*losses, likeness.mean().item(), likeness.min().item(), kornia.metrics.psnr(move(x), want, 1.0).item()]


@script("kornia", "homographies by least squares, augmentation with given parameters")
def geometry(seed):
    import kornia

    net = fill(torch.nn.Linear(8, 8), seed)

    def loss_of(rng):
        a = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]])
        b = a + 0.1 * net(normal(rng, 1, 8)).view(1, 4, 2)
        matrix = kornia.geometry.get_perspective_transform(a, b)
        points = kornia.geometry.transform_points(matrix, torch.sigmoid(normal(rng, 1, 10, 2)))
        turned = kornia.geometry.quaternion_to_rotation_matrix(kornia.geometry.axis_angle_to_quaternion(net.weight[:, :3]))
        return points.square().mean() + (turned[:, 0, 1] ** 2).mean()

    return train(net, seed, loss_of, 20)


if __name__ == "__main__":
    main()
