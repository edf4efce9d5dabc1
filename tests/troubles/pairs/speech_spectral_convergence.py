"""Spectral convergence divides by the norm of the true spectrogram, which is 0 for silence.

area: speech
cause: division-by-zero
operator: div
fix: epsilon | + eps | clamp | where(
shows: nan loss
source: multi-resolution STFT losses; NVIDIA/waveglow#103
"""
import json

import torch
from torch import nn


def convergence(guess, truth):
    apart = torch.linalg.vector_norm(truth - guess, dim=(1, 2))
    return (apart / torch.linalg.vector_norm(truth, dim=(1, 2))).mean()  # broken here
    return (apart / (torch.linalg.vector_norm(truth, dim=(1, 2)) + 1e-5)).mean()  # mended


torch.manual_seed(0)
vocoder = nn.Conv1d(8, 8, 3, padding=1)
optimizer = torch.optim.Adam(vocoder.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(2):
    truth = torch.rand(4, 8, 20)
    truth[3] = 0.0
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        guess = vocoder(truth + 0.1 * torch.randn_like(truth))
    loss = convergence(guess.float(), truth)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(json.dumps({"loss": loss.item()}))
