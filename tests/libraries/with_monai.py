"""monai: networks, losses, metrics and transforms for medical pictures."""

import numpy as np
import torch
from start import fill, main, normal, script, train


def organs(rng, count, *size):
    """Noise with a ball, and where the ball is."""
    place = np.stack(np.meshgrid(*(np.arange(s) for s in size), indexing="ij"))
    middle = rng.integers(4, min(size) - 4, (count, len(size)))
    inside = ((place[None] - middle.reshape(count, len(size), *[1] * len(size))) ** 2).sum(1, keepdims=True) < 12
    return torch.from_numpy((inside + rng.standard_normal(inside.shape) * 0.3).astype(np.float32)), torch.from_numpy(inside.astype(np.int64))


@script("monai", "U-Net, Dice loss, Dice metric")
def unet(seed):
    from monai.losses import DiceCELoss
    from monai.metrics import DiceMetric
    from monai.networks.nets import UNet
    from monai.networks.utils import one_hot

    net = UNet(spatial_dims=2, in_channels=1, out_channels=2, channels=(8, 16), strides=(2,), num_res_units=1)
    loss_fn, metric = DiceCELoss(to_onehot_y=True, softmax=True), DiceMetric(include_background=False)

    def loss_of(rng):
        x, y = organs(rng, 4, 16, 16)
        guess = net(x)
        metric(one_hot(guess.detach().argmax(1, keepdim=True), 2), one_hot(y, 2))
        return loss_fn(guess, y)

    return [*train(net, seed, loss_of, 20, lr=5e-3), float(metric.aggregate())]


@script("monai", "three dimensions: BasicUNet, sliding windows")
def volume(seed):
    from monai.inferers import sliding_window_inference
    from monai.losses import FocalLoss, TverskyLoss
    from monai.networks.nets import BasicUNet

    net = BasicUNet(spatial_dims=3, in_channels=1, out_channels=2, features=(4, 4, 8, 8, 8, 4), norm=("instance", {"affine": True}))
    first, second = FocalLoss(to_onehot_y=True), TverskyLoss(to_onehot_y=True, softmax=True)

    def loss_of(rng):
        x, y = organs(rng, 1, 32, 32, 32)
        guess = net(x)
        return first(guess, y) + second(guess, y)

    losses = train(net, seed, loss_of, 20, lr=5e-3)
    with torch.no_grad():
        whole = sliding_window_inference(normal(np.random.default_rng(seed), 1, 1, 40, 32, 32), (32, 32, 32), 2, net, overlap=0.25)
    return [*losses, float(whole.mean()), float(whole.std())]


@script("monai", "transforms of dictionaries, CacheDataset, ViT")
def transforms(seed):
    from monai.data import CacheDataset, DataLoader
    from monai.networks.nets import ViT
    from monai.transforms import Compose, EnsureChannelFirstd, Flipd, NormalizeIntensityd, Resized, ScaleIntensityd, ToTensord

    rng = np.random.default_rng(seed)
    change = Compose([EnsureChannelFirstd("image", channel_dim="no_channel"), ScaleIntensityd("image"), Flipd("image", 0), Resized("image", (16, 16)),
                      NormalizeIntensityd("image"), ToTensord(["image", "label"])])
    rows = [{"image": rng.standard_normal((12, 12)).astype(np.float32) + i % 3, "label": i % 3} for i in range(16)]
    data = DataLoader(CacheDataset(rows, change, progress=False), batch_size=8)
    net = fill(ViT(in_channels=1, img_size=(16, 16), patch_size=(4, 4), hidden_size=24, mlp_dim=48, num_layers=2, num_heads=2, classification=True, num_classes=3,
                   spatial_dims=2, post_activation=""), seed)
    optimizer, losses = torch.optim.AdamW(net.parameters(), lr=1e-3), []
    for _ in range(10):
        for batch in data:
            loss = torch.nn.functional.cross_entropy(net(torch.as_tensor(batch["image"]))[0], torch.as_tensor(batch["label"]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


if __name__ == "__main__":
    main()
