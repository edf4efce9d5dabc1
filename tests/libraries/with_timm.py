"""timm: four of its models, its optimizers' factory, its average of weights, its losses and schedules."""

import torch
from start import main, pictures, script, train


def classify(name, seed, size=32, optimizer=None, steps=20, lr=1e-3, **settings):
    import timm

    model = timm.create_model(name, num_classes=4, **settings).train()

    def loss_of(rng):
        x, y = pictures(rng, 4, 3, size, size)
        return torch.nn.functional.cross_entropy(model(x), y)

    return train(model, seed, loss_of, steps, optimizer, lr)


@script("timm", "resnet18")
def resnet18(seed):
    return classify("resnet18", seed, 48)


@script("timm", "vit_tiny")
def vit_tiny(seed):
    return classify("vit_tiny_patch16_224", seed, img_size=32, depth=3)


@script("timm", "convnext_atto")
def convnext_atto(seed):
    return classify("convnext_atto", seed, 64, depths=(1, 1, 2, 1), dims=(16, 32, 64, 128))


@script("timm", "efficientnet_b0")
def efficientnet(seed):
    return classify("efficientnet_b0", seed, 48)


@script("timm", "vit_tiny under autocast", rounding="bfloat16")
def vit_bf16(seed):
    import timm

    model = timm.create_model("vit_tiny_patch16_224", num_classes=4, img_size=32, patch_size=8, depth=2)

    def loss_of(rng):
        x, y = pictures(rng, 4, 3, 32, 32)
        with torch.autocast("cpu", torch.bfloat16):
            return torch.nn.functional.cross_entropy(model(x), y)

    return train(model, seed, loss_of, 20)


@script("timm", "its own optimizer, average of weights, smoothed loss")
def parts(seed):
    import timm
    from timm.loss import LabelSmoothingCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.utils import ModelEmaV3

    model = timm.create_model("vit_tiny_patch16_224", num_classes=4, img_size=32, patch_size=8, depth=1)
    loss_fn = LabelSmoothingCrossEntropy(0.1)
    averages = []

    def loss_of(rng):
        x, y = pictures(rng, 4, 3, 32, 32)
        if not averages:
            averages.append(ModelEmaV3(model, decay=0.9))
        averages[0].update(model)
        return loss_fn(model(x), y)

    losses = train(model, seed, loss_of, 20, lambda p, lr: create_optimizer_v2(p, opt="lamb", lr=lr, weight_decay=0.01))
    return losses + [float(p.detach().abs().mean()) for p in averages[0].module.parameters()]


if __name__ == "__main__":
    main()
