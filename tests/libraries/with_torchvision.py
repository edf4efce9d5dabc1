"""torchvision: models, transforms and utilities. Its compiled operators (nms, roi_align) load beside neither library."""

import numpy as np
import torch
from start import main, normal, pictures, script, train


def classify(name, seed, size=48):
    from torchvision import models

    model = getattr(models, name)(weights=None, num_classes=4)
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0

    def loss_of(rng):
        x, y = pictures(rng, 4, 3, size, size)
        return torch.nn.functional.cross_entropy(model(x), y)

    return train(model, seed, loss_of, 20)


@script("torchvision", "mobilenet_v3_small")
def mobilenet(seed):
    return classify("mobilenet_v3_small", seed)


@script("torchvision", "resnet18")
def resnet18(seed):
    return classify("resnet18", seed)


@script("torchvision", "v2 transforms")
def transforms(seed):
    from torchvision import tv_tensors
    from torchvision.transforms import InterpolationMode, v2

    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 15 * 15, 4))
    change = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Resize((36, 36), antialias=True), v2.CenterCrop(32), v2.RandomHorizontalFlip(1.0), v2.Pad(2), v2.CenterCrop(32),
                         v2.Normalize([0.4, 0.5, 0.6], [0.2, 0.3, 0.25])])

    def loss_of(rng):
        x, y = pictures(rng, 8, 3, 24, 24)
        x = change((x.clamp(-1, 2) * 85 + 85).to(torch.uint8))
        return torch.nn.functional.cross_entropy(net(x), y)

    losses = train(net, seed, loss_of, 20)
    image = tv_tensors.Image((normal(np.random.default_rng(seed), 3, 16, 16) * 40 + 128).clamp(0, 255).to(torch.uint8))
    boxes = tv_tensors.BoundingBoxes([[2, 3, 10, 12]], format="XYXY", canvas_size=(16, 16))
    turned, moved = v2.Compose([v2.RandomHorizontalFlip(1.0), v2.Resize((32, 32), interpolation=InterpolationMode.BILINEAR)])(image, boxes)
    return losses + [float(turned.float().mean()), *moved.flatten().tolist()]


if __name__ == "__main__":
    main()
