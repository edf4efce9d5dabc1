"""1,797 digits of 8 x 8, enlarged."""

import os

import numpy as np
import torch


class _Digits(torch.utils.data.Dataset):
    channels, size = 1, 28

    def __init__(self, root=None, train=True, transform=None, target_transform=None, download=False):
        held = np.load(os.environ["DIGITS"])
        images, labels = held["images"].reshape(-1, 8, 8).astype(np.float32) / 16, held["labels"].astype(np.int64)
        keep = slice(0, 1500) if train else slice(1500, None)
        side = np.arange(self.size) * 8 // self.size
        large = images[keep][:, side][:, :, side]
        self.data = np.repeat(large[:, None], self.channels, 1)
        self.targets, self.transform, self.target_transform = labels[keep].tolist(), transform, target_transform

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, i):
        image, label = torch.from_numpy(self.data[i]), self.targets[i]
        if self.transform is not None:
            image = self.transform(image)
        return image, label if self.target_transform is None else self.target_transform(label)


class MNIST(_Digits):
    pass


class CIFAR10(_Digits):
    channels, size = 3, 32
