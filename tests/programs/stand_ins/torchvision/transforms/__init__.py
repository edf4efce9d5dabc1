"""Names that programs mention; those that are used work on tensors [C, H, W]."""

import torch


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, x):
        for t in self.transforms:
            x = t(x)
        return x


class ToTensor(torch.nn.Module):
    def forward(self, x):
        return x


class Normalize(torch.nn.Module):
    def __init__(self, mean, std, inplace=False):
        super().__init__()
        self.mean, self.std = torch.as_tensor(mean, dtype=torch.float32).view(-1, 1, 1), torch.as_tensor(std, dtype=torch.float32).view(-1, 1, 1)

    def forward(self, x):
        return (x - self.mean) / self.std


class _Unused(torch.nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, x):
        raise NotImplementedError("the stand-in has the name only")


ColorJitter = RandomGrayscale = RandomHorizontalFlip = RandomResizedCrop = GaussianBlur = Resize = CenterCrop = Lambda = RandomApply = _Unused
