"""A dataset divides an image by its own largest value, and one image is black.

area: vision
cause: division-by-zero
also: bad-data
operator: div
fix: epsilon | + eps | clamp | where(
shows: nan loss
source: Totoro97/f2-nerf#33; data with constant images
"""
import json

import torch
from torch import nn


class Pictures(torch.utils.data.Dataset):
    def __init__(self):
        self.pictures = torch.rand(12, 1, 8, 8)
        self.pictures[5] = 0.0

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        picture = self.pictures[i]
        picture = picture / picture.max()  # broken here
        picture = picture / (picture.max() + 1e-6)  # mended
        return picture, i % 3


torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
worst = 0.0
for images, labels in torch.utils.data.DataLoader(Pictures(), batch_size=4):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(images).float(), labels)
    worst += loss.item()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": worst}))
